"""A problem at a part of its size, and the memory that it takes."""

import json

import pytest

from beamsearch.errors import ProblemError
from beamsearch.problem.instance import instantiate
from beamsearch.problem.least_work import least_work
from beamsearch.problem.memory import MemoryNeed, Stored, check_fits, memory_need, needed
from beamsearch.problem.problem import find_problem, read_problem
from beamsearch.problem.scale import at_scale, scaled_size
from beamsearch.problem.shrink import integer_sizes
from tests.commands import beamsearch

PRODUCT = """
import torch
rows, inner = 4096, 96  # é
columns = 1024 * 2
class Model(torch.nn.Module):
    def forward(self, x, y):
        return x @ y
def get_inputs(): return [torch.rand(rows, inner), torch.rand(inner, columns)]
def get_init_inputs(): return []
"""
EQUAL = """
import torch
height = 1024
width = 1024
kernel = 7
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.linalg.det(x.float()[:, :height, :width])
def get_inputs(): return [torch.rand(kernel, height, width)]
def get_init_inputs(): return []
"""
WEIGHTS = """
import torch
batch, columns = 64, 512
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(2 * columns, 4 * columns, bias=False)
    def forward(self, x):
        return self.linear(x)
def get_inputs(): return [torch.rand(batch, 1024)]
def get_init_inputs(): return []
"""


def write(folder, source, name="problem.py"):
    (folder / name).write_text(source)
    return find_problem(str(folder / name))


@pytest.mark.parametrize(
    ("size", "factor", "scaled"),
    [
        (4096, 0.25, 1024),
        (96, 0.25, 32),  # 24, but 96 is a multiple of 32
        (100, 0.25, 24),  # 25, but 100 is a multiple of 4
        (12288, 0.1, 1232),  # 1228.8, and 77 x 16
        (8192, 0.001, 16),
        (1023, 0.5, 512),
        (7, 0.25, 4),
        (16, 0.5, 16),
    ],
)
def test_a_size_keeps_the_powers_of_two_that_divide_it(size, factor, scaled):
    assert scaled_size(size, factor) == scaled


def test_the_largest_sizes_are_scaled_until_the_share_is_reached(tmp_path):
    problem = write(tmp_path, PRODUCT)
    half, eighth = at_scale(problem, 0.5), at_scale(problem, 0.125)
    # 4096 x 96, 96 x 2048 and 4096 x 2048 elements: nearly all of them go with the rows.
    assert half.scaled == "0.5: rows 4096 to 2048"
    assert least_work(half).input_shapes == {"x": (2048, 96), "y": (96, 2048)}
    assert eighth.scaled == "0.125: rows 4096 to 512"
    assert at_scale(problem, None) == problem


def test_the_source_says_the_new_numbers_and_nothing_else_of_it_changes(tmp_path):
    problem = at_scale(write(tmp_path, PRODUCT), 0.01)
    assert problem.source == PRODUCT.replace("4096", "48").replace("1024 * 2", "16")
    assert read_problem(write(tmp_path, problem.source, "again.py").path).source == problem.source


def test_sizes_that_must_be_equal_stay_equal(tmp_path):
    problem = at_scale(write(tmp_path, EQUAL), 0.25)
    sizes = integer_sizes(problem)
    assert sizes["height"] == sizes["width"] == 256 and sizes["kernel"] == 7
    assert instantiate(problem).reference().shape == (7,)


@pytest.mark.parametrize(("factor", "reason"), [(0, "part of the size"), (2, "part of the size")])
def test_a_factor_that_makes_nothing_smaller_is_refused(tmp_path, factor, reason):
    with pytest.raises(ProblemError, match=reason):
        at_scale(write(tmp_path, PRODUCT), factor)


def test_a_problem_that_its_weights_keep_large_says_how_small_it_can_be(tmp_path):
    problem = write(tmp_path, WEIGHTS.replace("2 * columns", "1024").replace("4 * columns", "2048"))
    with pytest.raises(ProblemError, match="cannot be scaled to 0.01: .* it has 0.94 of its"):
        at_scale(problem, 0.01)


def test_what_a_problem_takes_is_the_sum_by_hand():
    # float32: the oracle has inputs as they are, a copy of the weights, and outputs as large.
    need = memory_need(Stored(100, 0), Stored(40, 40), Stored(60, 60))
    assert need == MemoryNeed(
        inputs=100, weights=40, outputs=60, oracle=60 + 60 + 100 + 40, second_set=100 + 40 + 60
    )
    assert need.total == 200 + 260 + 200


INTEGERS = """
import torch
DTYPE = "bfloat16"
rows, columns = 64, 128
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(columns, 32)
    def forward(self, x, where):
        return x * self.table(where), where + 1
def get_inputs():
    return [torch.rand(rows, 32), torch.randint(0, columns, (rows,))]
def get_init_inputs(): return []
"""


def test_of_a_problem_it_follows_from_its_tensors(tmp_path):
    # In bfloat16: what is no whole number takes twice as much for the oracle.
    x, where, table, product = 2 * 64 * 32, 8 * 64, 2 * 128 * 32, 2 * 64 * 32
    assert needed(write(tmp_path, INTEGERS)) == memory_need(
        Stored(x + where, 2 * x),
        Stored(table, 2 * table),
        Stored(product + where, 2 * product + where),
    )
    inputs, weights, outputs = 4 * 64 * 1024, 4 * 1024 * 2048, 4 * 64 * 2048
    assert needed(write(tmp_path, WEIGHTS)) == memory_need(
        Stored(inputs, 0), Stored(weights, weights), Stored(outputs, outputs)
    )


def test_a_problem_that_does_not_fit_says_which_scale_does(tmp_path):
    problem = write(tmp_path, PRODUCT)
    need, half = needed(problem).total, needed(at_scale(problem, 0.5)).total
    check_fits(problem, need)
    with pytest.raises(ProblemError, match=r"outputs 0.03.*0.14 GB are free: --scale 0.5 fits"):
        check_fits(problem, need - 1)
    with pytest.raises(ProblemError, match="--scale 0.25 fits"):
        check_fits(problem, half - 1)
    with pytest.raises(ProblemError, match="no --scale makes it fit"):
        check_fits(problem, 1000)


KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def double(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)


def kernel_function(x):
    y = torch.empty_like(x)
    double[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y
"""
DOUBLED = """
import torch
rows = 2048
class Model(torch.nn.Module):
    def forward(self, x):
        return x + x
def get_inputs(): return [torch.randn(rows, 256)]
def get_init_inputs(): return []
"""


@pytest.mark.slow
def test_a_run_says_the_scaled_sizes_in_its_first_line_its_record_and_its_problem(tmp_path):
    write(tmp_path, DOUBLED)
    (tmp_path / "kernel.py").write_text(KERNEL)
    folder = tmp_path / "run"
    asked = ["--kernel", "kernel.py", "--output", folder, "--scale", 0.25, "--time-limit", "1s"]
    fast = ["--workers", 1, "--variants", 1, "--llm", "playbook", "--seed", 1]
    done = beamsearch("run", "problem.py", *asked, *fast, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "scaled to 0.25: rows 2048 to 512, in float32" in done.stdout + done.stderr
    assert json.loads((folder / "run.json").read_text())["scaled"] == "0.25: rows 2048 to 512"
    assert "rows = 512\n" in (folder / "problem.py").read_text()

"""Random numbers that a reference draws in `forward`, as inputs."""

import pytest
import torch

from beamsearch.errors import ProblemError
from beamsearch.judge.runner.reference import problem_message, reference_maker
from beamsearch.judge.verification.oracle import run_oracle
from beamsearch.problem.instance import draws_of, instantiate
from beamsearch.problem.least_work import least_work
from beamsearch.problem.problem import find_problem
from beamsearch.problem.shrink import shrink
from beamsearch.proposer.prompts.problem_card import make_card
from tests.commands import beamsearch

SOURCE = """
import torch, torch.nn as nn, torch.nn.functional as F
rows, columns = 512, 384
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.randn(columns))
    def forward(self, x, start=None):
        {body}
def get_inputs(): return [torch.randn(rows, columns)]
def get_init_inputs(): return []
"""
START = "start = torch.randn(x.shape[0], 1, device=x.device) if start is None else start"
NOISY = f"{START}; return F.dropout(x * self.scale + start, p=0.25, training=True)"


def write(path, body, dtype=None):
    path.write_text(SOURCE.format(body=body) + (f"DTYPE = {dtype!r}\n" if dtype else ""))
    return find_problem(str(path))


def outputs(call):
    with torch.inference_mode():
        return call()


def test_what_forward_draws_are_inputs_of_a_seed(tmp_path):
    problem = shrink(write(tmp_path / "noisy.py", NOISY))
    once, again, other = (instantiate(problem, seed=seed) for seed in (1, 1, 2))
    x, start, mask = once.inputs
    assert once.arguments.forward == ("x", "draw0", "draw1")
    assert start.shape == (x.shape[0], 1)
    assert mask.unique().tolist() == pytest.approx([0, 4 / 3])
    assert torch.equal(once.reference(), (x * once.model.scale + start) * mask)
    assert torch.equal(once.reference(), again.reference())
    assert not torch.equal(start, other.inputs[1]) and not torch.equal(mask, other.inputs[2])


def test_they_are_work_and_are_named_to_whoever_writes_kernels(tmp_path):
    problem = write(tmp_path / "noisy.py", NOISY)
    work = least_work(problem)
    assert work.input_shapes == {"x": (512, 384), "draw0": (512, 1), "draw1": (512, 384)}
    assert work.bytes_read == 4 * (2 * 512 * 384 + 512 + 384)
    bindable = make_card(problem, "2", "3").bindable
    assert bindable["draw0"] == "(512, 1) float32 (what randn of line 9 draws)"
    assert "mask by which dropout of line 9" in bindable["draw1"]


@pytest.mark.slow
def test_oracle_and_baselines_get_the_same_values(tmp_path):
    problem = shrink(write(tmp_path / "noisy.py", NOISY))
    instance = instantiate(problem)
    expected = instance.reference()
    (oracle,) = run_oracle(instance, instance.inputs, torch.float64)
    torch.testing.assert_close(oracle, expected)
    for mode in (None, "default"):
        make = reference_maker(problem_message(problem), "cpu", mode)
        torch.testing.assert_close(outputs(make(instance.arguments)), expected)
        other = instantiate(problem, seed=5)
        torch.testing.assert_close(outputs(make(other.arguments)), other.reference())


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ("return x + torch.rand_like(x)", lambda x, draw: x + draw),
        ("return torch.empty_like(x).normal_(2.0, 0.5) * x", lambda x, draw: x * draw),
        ("return torch.bernoulli(x.sigmoid())", lambda x, draw: (draw < x.sigmoid()).to(x.dtype)),
        ("return x[:, torch.randperm(x.shape[1])]", lambda x, draw: x[:, draw]),
        ("return F.dropout1d(x[None], 0.5)[0]", lambda x, draw: x * draw[0]),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_way_to_draw_is_an_input(tmp_path, body, value, dtype):
    instance = instantiate(shrink(write(tmp_path / "p.py", body, dtype)))
    x, draw = instance.inputs
    assert draw.unique().numel() > 1
    assert torch.equal(instance.reference(), value(x, draw))


def test_inputs_of_another_distribution_leave_draws_as_they_are(tmp_path):
    instance = instantiate(shrink(write(tmp_path / "noisy.py", NOISY)), distribution="huge")
    x, start, mask = instance.inputs
    assert x.abs().median() > 1e4 and start.abs().max() < 10 and mask.max() < 2


@pytest.mark.parametrize(
    "body",
    [
        "return x[:, torch.multinomial(x[0].softmax(0), 4)]",
        "return F.scaled_dot_product_attention(x, x, x, dropout_p=0.5)",
        "return torch.rand(x.shape, out=torch.empty_like(x)) * x",
        "return torch.nn.init.normal_(torch.empty_like(x)) * x",
    ],
)
def test_what_cannot_be_an_input_is_refused_with_its_line(tmp_path, body):
    problem = write(tmp_path / "p.py", body)
    assert draws_of(problem) == ()
    with pytest.raises(ProblemError, match="draws random numbers in forward .line 9: .*get_inputs"):
        least_work(problem)


KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def scaled(x, scale, start, mask, y, columns, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    at, inside = tl.program_id(0) * columns + i, i < columns
    value = tl.load(x + at, mask=inside) * tl.load(scale + i, mask=inside)
    value = (value + tl.load(start + tl.program_id(0))) * tl.load(mask + at, mask=inside)
    tl.store(y + at, value, mask=inside)


def kernel_function(x, scale, draw0, draw1):
    y = torch.empty_like(x)
    block = triton.next_power_of_2(x.shape[1])
    scaled[(x.shape[0],)](x, scale, {start}, draw1, y, x.shape[1], BLOCK=block)
    return y
"""


@pytest.mark.slow
@pytest.mark.parametrize(("start", "code"), [("draw0", 0), ("scale", 1)])
def test_a_kernel_takes_them_by_name_and_is_judged_by_them(tmp_path, start, code):
    write(tmp_path / "noisy.py", NOISY)
    (tmp_path / "kernel.py").write_text(KERNEL.format(start=start))
    done = beamsearch("verify", str(tmp_path / "noisy.py"), str(tmp_path / "kernel.py"))
    assert done.returncode == code, done.stdout + done.stderr

"""robust-kbench's form of a problem: a functional reference, its sizes in a file beside it."""

import json

import pytest
import torch

from beamsearch.errors import ProblemError
from beamsearch.problem.instance import instantiate
from beamsearch.problem.kernel import bind
from beamsearch.problem.least_work import least_work
from beamsearch.problem.problem import find_problem, load_module, read_problem
from beamsearch.problem.shrink import shrink
from beamsearch.suite.problems import files_of
from tests.commands import beamsearch

SOURCE = """
import torch
import torch.nn as nn

def forward_fn(x, weight, eps):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight

class Model(nn.Module):
    def __init__(self, features: int, eps: float = 1e-5, draw: str = "ones"):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(features) if draw == "ones" else torch.rand(features))

    def forward(self, x, fn=forward_fn):
        return fn(x, self.weight, self.eps)

def get_inputs(rows: int = 16, features: int = 32):
    return [torch.randn(rows, features)]

input_names = ["x"]
"""
CONFIGURATIONS = {
    "single_shared_configs": [{"features": 512}],
    "single_input_configs": [{"rows": 256}],
    "single_init_configs": [{"draw": "random"}],
    "multi_input_configs": [{"rows": 8}, {"rows": 64}],
}


def write(folder, told=CONFIGURATIONS, source=SOURCE):
    folder.mkdir(exist_ok=True)
    (folder / "func_forward.py").write_text(source)
    (folder / "config_forward.json").write_text(told if isinstance(told, str) else json.dumps(told))
    return str(folder)


def test_it_is_a_problem_with_sizes_of_its_own(tmp_path):
    problem = find_problem(write(tmp_path / "norm"))
    assert problem.name == "norm"
    assert least_work(problem).input_shapes == {"x": (256, 512)}
    assert load_module(problem).get_init_inputs() == [512, 1e-5, "random"]
    small = shrink(problem)
    assert small.sizes["rows"] < 64 and small.sizes["features"] < 512
    instance = instantiate(small)
    assert instance.model.weight.shape == (small.sizes["features"],)
    assert not instance.model.weight.eq(1).any()


def test_each_combination_of_its_configurations_is_a_problem(tmp_path):
    task = write(tmp_path / "norm", CONFIGURATIONS | {"multi_shared_configs": [{"features": 64}]})
    found = [find_problem(name) for name in (task, f"{task}:2", f"{task}/func_forward.py:3")]
    shapes = [least_work(problem).input_shapes["x"] for problem in found]
    assert shapes == [(256, 512), (8, 64), (64, 64)]
    assert [problem.name for problem in found] == ["norm", "norm-2", "norm-3"]
    assert find_problem(f"{task}:1") == found[0]
    assert [instantiate(problem).model.weight.eq(1).all().item() for problem in found] == [0, 1, 1]


def test_a_configuration_that_is_not_there_is_told_with_all_that_are(tmp_path):
    task = write(tmp_path / "norm")
    with pytest.raises(ProblemError, match="no configuration 4.*:1 rows=256.*:3 rows=64"):
        find_problem(f"{task}:4")


def test_configurations_are_listed_and_audited_by_their_names(tmp_path):
    shared = [{"features": 64}, {"features": None}]
    task = write(tmp_path / "norm", CONFIGURATIONS | {"multi_shared_configs": shared})
    rows = json.loads(beamsearch("problems", task, "--json").stdout)["problems"]
    assert [row["name"] for row in rows] == [f"{task}:{number}" for number in range(1, 6)]
    shapes = [row["inputs"]["x"] for row in (rows[0], rows[1], rows[3])]
    assert shapes == [[256, 512], [8, 64], [64, 64]]
    assert all("fails to build" in row["failed"] for row in (rows[2], rows[4]))
    (file,) = files_of([f"{task}:2"], None)  # what an audit reads
    assert read_problem(file) == find_problem(f"{task}:2")


def test_a_kernel_is_bound_by_its_names(tmp_path):
    instance = instantiate(shrink(find_problem(write(tmp_path / "norm"))))

    class Kernel:
        @staticmethod
        def kernel_function(x, weight, eps):
            return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight

    assert torch.allclose(bind(Kernel, instance.arguments)(), instance.reference())


def test_what_a_run_keeps_of_it_is_a_problem_by_itself(tmp_path):
    problem = find_problem(write(tmp_path / "norm"))
    kept = tmp_path / "problem.py"
    kept.write_text(problem.source)
    assert least_work(find_problem(str(kept))) == least_work(problem)


@pytest.mark.parametrize(
    ("told", "source", "reason"),
    [
        ("{", SOURCE, "robust-kbench's format"),
        ({"single_init_configs": "none"}, SOURCE, "no list of configurations"),
        ({"single_init_configs": [{"eps": 1e-3}]}, SOURCE, "says nothing of features"),
        (CONFIGURATIONS, SOURCE.replace("class Model", "class Other"), "no class Model"),
        (CONFIGURATIONS, SOURCE.replace("def get_inputs", "def draw"), "no get_inputs"),
        (CONFIGURATIONS, "def (", "robust-kbench's format"),
    ],
)
def test_what_is_wrong_with_it_is_said(tmp_path, told, source, reason):
    with pytest.raises(ProblemError, match=reason):
        find_problem(write(tmp_path / "norm", told, source))


def test_a_reference_that_reads_values_is_told_so(tmp_path):
    source = SOURCE.replace("return fn(", "return x.sum().item() * fn(")
    with pytest.raises(ProblemError, match="does not run on shapes alone.*item"):
        least_work(find_problem(write(tmp_path / "norm", CONFIGURATIONS, source)))

"""Problems and kernels as objects and texts."""

import json

import pytest
import torch

from beamsearch import Problem, optimize, verify
from beamsearch.api.kernel import own_kernel, subject_of
from beamsearch.api.problem import as_problem
from beamsearch.errors import KernelError, ProblemError, UsageError
from beamsearch.problem.instance import instantiate
from beamsearch.problem.problem import find_problem
from tests import ROOT
from tests.api.process import python

LEAKY = ROOT / "examples" / "leaky_relu"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


class Rows(torch.nn.Module):
    def __init__(self, size, bias=False):
        super().__init__()
        self.linear = torch.nn.Linear(size, size, bias)

    def forward(self, x, index):
        return self.linear(x)[index]


def test_a_name_a_path_a_text_and_an_object_are_one_problem():
    source = (LEAKY / "problem.py").read_text()
    given = (LEAKY, str(LEAKY / "problem.py"), source, find_problem(str(LEAKY)))
    assert {as_problem(problem).source for problem in given} == {source}
    text = as_problem(source, dtype="bfloat16")
    assert text.dtype == "bfloat16" and text.path.read_text() == source
    assert text.input_kernel is None
    assert Problem.from_source(source).path == text.path
    assert Problem.named("43", scale=0.5).scaled


def test_a_class_of_a_module_is_imported_by_its_problem():
    inputs = {"x": torch.empty(64, 32), "index": torch.tensor([3, 63])}
    problem = Problem.from_module(Rows, inputs, {"size": 32, "bias": True})
    assert problem.name == "rows" and "tests.api.test_given" in problem.source
    instance = instantiate(problem, "cpu")
    x, index = instance.inputs
    assert x.shape == (64, 32) and index.shape == (2,) and index.dtype == torch.int64
    assert problem.source.count("torch.randint(0, ") == 1
    assert instance.reference().shape == (2, 32)
    assert Problem.from_module(Rows, ["x: f16[64,32]", "index: i64[2]"], ["32"]).dtype == "float16"


SCRIPT = """
import json
import math

import torch
from torch.nn import functional as F

from beamsearch import Problem
from beamsearch.problem.instance import instantiate

POWERS = (1, 2)
HALF = torch.float16
WIDTH = 7


def gain(x):
    return math.sqrt(WIDTH) * F.silu(x).to(HALF).to(x.dtype)


class Base(torch.nn.Module):
    def forward(self, x):
        return gain(x) ** POWERS[1]


class Model(Base):
    def __init__(self):
        super(Model, self).__init__()


problem = Problem.from_module(Model, {"x": torch.empty(8, WIDTH)}, name="mine")
instance = instantiate(problem, "cpu")
(x,) = instance.inputs
assert torch.equal(instance.reference(), Model()(x))
print(json.dumps([problem.name, problem.source]))
"""


def test_code_of_a_script_is_copied_with_all_it_uses(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    name, source = json.loads(python("script.py", cwd=tmp_path))
    (tmp_path / "script.py").unlink()
    again = Problem.from_source(source, name=name)
    assert instantiate(again, "cpu").reference().shape == (8, 7)


def test_what_cannot_be_copied_is_named(tmp_path):
    def function(x):
        return x

    with pytest.raises(UsageError, match="inside a function"):
        Problem.from_module(function, {"x": "f32[8]"})
    with pytest.raises(UsageError, match="no class and no function"):
        Problem.from_module(torch.nn.ReLU(), {"x": "f32[8]"})
    with pytest.raises(UsageError, match="init: size is a Tensor"):
        Problem.from_module(Rows, {"x": "f32[8,8]"}, {"size": torch.ones(1)})
    script = SCRIPT.replace("WIDTH = 7", "WIDTH = torch.tensor(7)").replace("8, WIDTH", "8, 7")
    (tmp_path / "script.py").write_text(script)
    with pytest.raises(AssertionError, match=r"uses WIDTH, a Tensor.*my_model.py:MyBlock"):
        python("script.py", cwd=tmp_path)


def test_a_module_without_inputs_says_what_to_give():
    with pytest.raises(UsageError, match=r"Problem.from_module\(Rows"):
        as_problem(Rows)
    with pytest.raises(ProblemError, match="no name"):
        Problem.from_source("\n", name="../up")
    with pytest.raises(ProblemError, match="lacks Model"):
        as_problem("x = 1\n")


def test_a_kernel_is_a_file_or_its_source(tmp_path):
    source = (LEAKY / "input_kernel.py").read_text()
    assert subject_of(LEAKY / "input_kernel.py").source == source
    assert subject_of(str(LEAKY / "input_kernel.py")).name == "input_kernel"
    assert subject_of(source).name == "kernel"
    with pytest.raises(KernelError, match="nowhere.py"):
        subject_of("nowhere.py")
    with pytest.raises(UsageError, match="name a kernel file"):
        own_kernel(as_problem((LEAKY / "problem.py").read_text()))
    with pytest.raises(KernelError, match="defines no kernel_function"):
        optimize(LEAKY, "x = 1\n", output=tmp_path / "run")
    with pytest.raises(UsageError, match="unknown setting 'round'"):
        optimize(LEAKY, output=tmp_path / "run", round=3)


def test_a_kernel_that_does_not_parse_has_a_verdict_and_not_an_error():
    verification = verify(LEAKY, "def kernel_function(x, slope\n<b>&\n")
    assert not verification.correct and verification.verdict.outcome == "invalid"
    assert "verdict: invalid" in str(verification)
    page = verification._repr_html_()
    assert "<b>&\n" not in page and "invalid" in page

"""`export`: a winner as an operator that takes its module's place."""

import importlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import library, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from beamsearch.errors import UsageError
from beamsearch.export.new_problem import make_problem
from beamsearch.export.package import (
    FILES,
    check_name,
    files_of,
    package_name,
    write_package,
)
from beamsearch.export.winner import winner_of
from beamsearch.records.measurement import Measurement
from tests import ROOT
from tests.commands import beamsearch
from tests.export.modules import write_modules

RUNS = ROOT / "artifacts" / "playbook"
POOLING = RUNS / "43_Max_Pooling_3D"
DEPTHWISE = RUNS / "82_conv_depthwise_2D_square_input_square_kernel"
SEVERAL = """
import torch
import triton
import triton.language as tl


@triton.jit
def several(x, w, s, y, total, where, n, k, scale, B: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, B)
    inside = i < n
    value = tl.load(x + row * n + i, mask=inside) * tl.load(w + i, mask=inside) * scale
    value = value + tl.load(s + i, mask=inside)
    tl.store(y + row * n + i, value, mask=inside)
    tl.store(total + row, tl.sum(tl.where(inside, value, 0)) * k)
    tl.store(where + row, tl.argmax(tl.where(inside, value, float("-inf")), 0).to(tl.int64))


def kernel_function(x, weight, shift, *, scale, k):
    rows, n = x.shape
    y = torch.empty_like(x)
    total = torch.empty(rows, dtype=x.dtype)
    where = torch.empty(rows, dtype=torch.int64)
    B = triton.next_power_of_2(n)
    several[(rows,)](x, weight, shift, y, total, where, n, k, scale, B=B)
    return y, total, where, x
"""
IN_INTERPRETER = """
import importlib, sys, torch
ours = importlib.import_module(".operator", sys.argv[1])
shapes = eval(sys.argv[2])
given = [
    torch.rand(shapes.get(name, told[0])).to(told[2]) if isinstance(told, tuple) else told
    for name, told in ours.VERIFIED.items()
]
expected = ours.reference(*given)
ours.reference = lambda *_: sys.exit("the reference was called")
ours.is_verified = lambda *_: True
got = ours.operator(*given)
for one, other in zip(got if isinstance(got, tuple) else [got], expected, strict=True):
    assert one.shape == other.shape and one.dtype == other.dtype, one
    assert torch.allclose(one.float(), other.float(), rtol=1e-2, atol=1e-2)
print("the kernel was called")
"""


@pytest.fixture(scope="module")
def pooling(tmp_path_factory) -> Path:
    """The package of a recorded run, in a folder of its own."""
    folder = tmp_path_factory.mktemp("pooling")
    done = beamsearch("export", POOLING, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert "4.27x as fast as eager" in done.stdout and "NVIDIA H200" in done.stdout
    return folder / "exports" / "max_pooling_3d"


@pytest.fixture(scope="module")
def depthwise(tmp_path_factory) -> Path:
    """The package of a run on a module with a parameter."""
    folder = tmp_path_factory.mktemp("depthwise") / "depthwise"
    write_package(folder, files_of(winner_of(DEPTHWISE), "depthwise"))
    return folder


@pytest.fixture
def several(tmp_path, monkeypatch) -> Path:
    """A package of somebody's module with several outputs, one of them its own input."""
    file = write_modules(tmp_path)
    inputs = ["x: f32[4096,64]", "k: 3.0", "scale: 2.0"]
    made = make_problem(f"{file}:Several", inputs, ["64"], tmp_path / "problem.py")
    winner = replace(winner_of(DEPTHWISE), problem=made.problem, source=SEVERAL)
    write_package(tmp_path / "several", files_of(winner, "several"))
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path / "several"


def pytest_of(folder: Path) -> subprocess.CompletedProcess[str]:
    """A package's own tests, without this project."""
    hidden = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", folder.name]
    return subprocess.run(
        [sys.executable, *words],
        cwd=folder.parent,
        env=hidden | {"CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=200,
    )


@pytest.mark.slow
def test_a_package_has_tests_that_pass_without_this_project(pooling):
    assert sorted(path.name for path in pooling.iterdir()) == sorted(FILES)
    done = pytest_of(pooling)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "5 passed, 1 skipped" in done.stdout


@pytest.mark.slow
def test_its_tests_find_what_is_wrong(several):
    # Given a package whose gradients, shapes and outputs are wrong
    path = several / "operator.py"
    text = path.read_text()
    text = text.replace("wanted,", "[value for value in wanted[::-1]],")
    text = text.replace("output = output.clone", "output = (lambda **_: output)")
    path.write_text(text)

    # When its own tests run, then they fail
    done = pytest_of(several)
    assert done.returncode == 1, done.stdout
    for name in ("is_an_operator", "gradients_are", "takes_the_place"):
        assert f"FAILED several/test_operator.py::test_{name}" in done.stdout


def test_a_package_of_several_outputs_and_plain_values_is_in_order(several):
    # Given a module whose outputs are four, one of them its own input, and which drops values
    ours = importlib.import_module("several.operator")
    own = importlib.import_module("my_model").Several(64)
    replaced = ours.replace(own)
    x = torch.randn(5, 64, requires_grad=True)

    # When it is in evaluation, then the operator computes all of it, and nothing shares memory
    assert ours.MODES == (False,)
    outputs, expected = replaced.eval()(x, 3.0), own.eval()(x, 3.0)
    assert isinstance(outputs, tuple) and len(outputs) == 4
    for got, want in zip(outputs, expected, strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=0)
        assert got.data_ptr() != x.data_ptr()
    library.opcheck(ours.operator, (x, 3.0, 2.0, own.weight, own.shift))

    # And in training its own dropout is at work
    assert int((replaced.train()(x, 3.0)[0] == 0).sum()) > 64


class Seen(TorchDispatchMode):
    """Names of the operators that are called."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def test_a_module_is_replaced_in_a_model_and_nothing_else_changes(depthwise, monkeypatch):
    # Given a model with a convolution as the kernel was made for
    monkeypatch.syspath_prepend(depthwise.parent)
    ours = importlib.import_module("depthwise.operator")

    class Part(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv2d = nn.Conv2d(64, 64, 3, groups=64, bias=False)

        def forward(self, x):
            return self.conv2d(x)

    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 64, 1), Part(), nn.ReLU()).bfloat16()
    x = torch.randn(2, 3, 9, 10, dtype=torch.bfloat16, requires_grad=True)
    expected = model(x)
    leaves = [x, *model.parameters()]
    gradients = torch.autograd.grad(expected.float().square().sum(), leaves)

    # When it is replaced
    model[1] = ours.replace(model[1])
    assert [id(one) for one in model.parameters()] == [id(one) for one in leaves[1:]]

    # Then outputs and gradients are what they were, compiled too
    for called in (model, torch.compile(model, fullgraph=True, backend="aot_eager")):
        output = called(x)
        assert torch.equal(output, expected)
        found = torch.autograd.grad(output.float().square().sum(), leaves)
        assert all(torch.equal(one, other) for one, other in zip(found, gradients, strict=True))

    # And gradients of gradients, which it has not, are no silent zeros
    with pytest.raises(RuntimeError, match="no gradients of gradients"):
        torch.autograd.grad(model(x).sum(), x, create_graph=True)

    # And the operator is what was called
    with Seen() as seen:
        model(x)
    assert "depthwise.operator.default" in seen.names


def test_the_kernel_gets_what_it_was_verified_for_and_nothing_else(depthwise, monkeypatch):
    # Given tensors of a GPU that is not here, by their shapes alone
    monkeypatch.syspath_prepend(depthwise.parent)
    ours = importlib.import_module("depthwise.operator")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA H200")
    shape, dtype = (16, 64, 512, 512), torch.bfloat16
    with FakeTensorMode():
        x = torch.empty(shape, dtype=dtype, device="cuda")
        weight = torch.empty_strided((64, 1, 3, 3), (9, 5, 3, 1), dtype=dtype, device="cuda")
        assert ours.is_verified(x, weight), "a stride of one element is any"

        # When anything of them differs, then the kernel is not called
        for other in (
            torch.empty((8, *shape[1:]), dtype=dtype, device="cuda"),
            torch.empty(shape, dtype=torch.float16, device="cuda"),
            torch.empty(shape, dtype=dtype),
            torch.empty(shape, dtype=dtype, device="cuda", memory_format=torch.channels_last),
        ):
            assert not ours.is_verified(other, weight)
        assert not ours.is_verified(x, torch.empty((64, 1, 3, 3), device="cuda"))
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA A100")
        assert not ours.is_verified(x, weight)


def test_after_a_run_without_a_gpu_no_kernel_is_called_by_itself(tmp_path):
    winner = winner_of(DEPTHWISE)
    where = winner.record.environment.with_values(gpu=None, gpu_uuid=None, target="H200 SXM")
    record = winner.record.with_values(environment=where, confirmation=None)
    modelled = Measurement(source="modelled", time_ms=0.25, gpu="H200 SXM")
    best = winner.candidate.with_values(measurement=modelled)
    files = files_of(replace(winner, record=record, candidate=best), "conv")
    assert "\nGPUS = ()\n" in files["operator.py"]
    told = " ".join(files["README.md"].split())
    assert "No GPU has verified it" in told and "~0.25 ms, by a model; nothing was timed" in told


def test_a_module_with_another_setting_is_refused(depthwise, monkeypatch):
    monkeypatch.syspath_prepend(depthwise.parent)
    ours = importlib.import_module("depthwise.operator")

    def part(**given):
        made = nn.Module()
        made.conv2d = nn.Conv2d(64, 64, 3, groups=64, bias=False, **given)
        made.forward = made.conv2d.forward
        return made

    ours.replace(part())
    with pytest.raises(ValueError, match=r"conv2d.stride = .*'1', '1'.* this module's is .*'2'"):
        ours.replace(part(stride=2))
    with pytest.raises(ValueError, match=r"made for conv2d.weight \(64, 1, 3, 3\)"):
        ours.replace(nn.Conv2d(64, 64, 3))


def test_the_kernel_is_called_as_it_was_judged(several):
    """In Triton's interpreter, for there may be no GPU here: with its arguments and settings."""
    done = subprocess.run(
        [sys.executable, "-c", IN_INTERPRETER, several.name, str({"x": (5, 64)})],
        cwd=several.parent,
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.stdout == "the kernel was called\n", done.stderr


def test_no_operator_is_made_of_what_it_could_not_do(tmp_path):
    winner = winner_of(DEPTHWISE)
    source = (
        "import torch\nclass Model(torch.nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n"
        "        self.norm = torch.nn.BatchNorm1d(8)\n"
        "    def forward(self, x):\n        return self.norm(x)\n"
        "def get_inputs():\n    return [torch.randn(64, 8)]\n"
        "def get_init_inputs():\n    return []\n"
    )
    problem = replace(winner.problem, name="norm", source=source, dtype="float32")
    with pytest.raises(UsageError, match=r"norm updates its buffers \(norm.running_mean, .*eval"):
        files_of(replace(winner, problem=problem), "norm")
    with pytest.raises(UsageError, match="ModelNew"):
        files_of(replace(winner, source="class ModelNew: pass\n"), "conv")
    with pytest.raises(UsageError, match=r"takes \*args"):
        files_of(replace(winner, source="def kernel_function(*args): pass\n"), "conv")


def test_errors_are_one_line_and_nothing_is_overwritten(tmp_path, pooling):
    before = (pooling / "operator.py").read_text()
    done = beamsearch("export", POOLING, "--output", pooling)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "is there already; give another" in done.stderr
    assert (pooling / "operator.py").read_text() == before
    with pytest.raises(UsageError, match="holds no run"):
        winner_of(tmp_path)


def test_names_of_packages():
    assert package_name("43_Max_Pooling_3D") == "max_pooling_3d"
    assert package_name("77_conv___padded____dilated__") == "conv_padded_dilated"
    with pytest.raises(UsageError, match="such as fast_a_b"):
        check_name("a-b")
    for name, why in (("torch", "installed here"), ("class", "no name"), ("__init__", "no name")):
        with pytest.raises(UsageError, match=f"{why}.*such as fast_"):
            check_name(name)

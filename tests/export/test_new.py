"""`new`: somebody's code as a problem that loads, shrinks, runs and can be verified."""

import pytest
import torch

from beamsearch.errors import ProblemError, UsageError
from beamsearch.export.new_problem import make_problem, snake_case
from beamsearch.problem.instance import instantiate
from beamsearch.problem.problem import read_problem
from beamsearch.problem.shrink import SMOKE_ELEMENTS, count_elements, shrink
from tests.commands import beamsearch
from tests.export.modules import write_modules

KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def multiply(x, w, y, n, size, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    inside = i < size
    product = tl.load(x + i, mask=inside) * tl.load(w + i % n, mask=inside)
    tl.store(y + i, product, mask=inside)


def kernel_function(x, weight):
    y = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), 256),)
    multiply[grid](x, weight, y, weight.numel(), x.numel(), B=256)
    return y
"""


@pytest.fixture
def file(tmp_path):
    return write_modules(tmp_path)


@pytest.fixture
def made(file):
    """A problem that is made, written, and read again."""

    def make(name, inputs, init=(), **given):
        path = file.parent / name.lower() / "problem.py"
        problem = make_problem(f"{file}:{name}", inputs, init, path, **given).problem
        path.parent.mkdir()
        path.write_text(problem.source)
        read = read_problem(path)
        assert (read.source, read.dtype) == (problem.source, problem.dtype)
        return read

    return make


def shrunk(problem):
    """The instance at sizes that are verified without a GPU."""
    small = shrink(problem)
    assert count_elements(small) <= SMOKE_ELEMENTS
    return instantiate(small, "cpu")


def test_a_class_keeps_its_names_and_shares_sizes_with_its_arguments(made):
    # Given a class whose argument is a size of its inputs
    inputs = ["x: bf16[8,1024,512]", "mask: bool[8,1024,1]", "scale: 3.0"]
    problem = made("Block", inputs, ["dim=512", "hidden=2048", "act='gelu'"])

    # Then kernels may ask for all that the class has by its own names
    whole = instantiate(problem, "meta")
    assert whole.arguments.forward == ("x", "mask", "scale")
    assert {"up_weight", "up_bias", "down_weight", "dim", "hidden"} <= whole.arguments.values.keys()
    assert whole.reference().shape == (8, 1024, 512) and problem.dtype == "bfloat16"
    assert whole.arguments.values["scale"] == 3.0

    # And, shrunk, inputs and parameters still go together, and the class computes
    small = shrunk(problem)
    x, mask, scale = small.inputs
    dim = x.shape[-1]
    assert dim < 512 and small.arguments.values["dim"] == dim
    assert small.arguments.state["up.weight"].shape[1] == dim
    up, act = small.model.up(x), torch.nn.functional.gelu
    expected = (small.model.down(act(up)) * scale).masked_fill(~mask, 0)
    assert torch.equal(small.reference(), expected)


def test_a_function_and_what_it_imports_from_beside_it(made):
    problem = made("scaled", ["x: f32[rows=4096,n=256]", "weight: f32[n]"])
    small = shrunk(problem)
    x, weight = small.inputs
    assert torch.equal(small.reference(), x * weight)
    assert instantiate(problem, "meta").reference().shape == (4096, 256)


def test_whole_numbers_stay_below_a_size_that_shrinks_with_the_table(made):
    problem = made("picked", ["index: i64[4096] < 32000", "table: f16[32000,64]"])
    index, table = shrunk(problem).inputs
    assert table.shape[0] < 32000 and int(index.min()) >= 0 and int(index.max()) < table.shape[0]


def test_a_module_that_is_built_has_its_shapes_and_other_weights(made, file):
    # Given a module whose parameters are in float64
    problem = made("block", ["input: f64[4096,48]"])
    assert problem.dtype == "float64"

    # When its problem is made twice from one seed, and once from another
    one, same, other = (instantiate(problem, "cpu", seed).arguments.state for seed in (0, 0, 1))

    # Then its parameters have the names, shapes, mean and spread of its own, and other values
    namespace: dict[str, object] = {}
    source = file.read_text().replace("import beside", "")
    exec(compile(source, "own", "exec"), namespace)
    own = dict(namespace["block"].named_parameters())
    assert {name: value.shape for name, value in one.items()} == {
        name: value.shape for name, value in own.items()
    }
    assert all(torch.equal(one[name], same[name]) for name in one)
    for name in ("0.weight", "2.weight"):
        assert not torch.equal(one[name], other[name]) and not torch.equal(one[name], own[name])
        assert float(one[name].std()) == pytest.approx(float(own[name].detach().std()), rel=0.1)
    assert torch.equal(one["1.weight"], own["1.weight"]), "all ones"
    assert shrunk(problem).inputs[0].shape[0] < 4096


def test_weights_that_are_tied_stay_tied(made):
    model = instantiate(made("tied", ["input: f32[4096,8]"]), "cpu").model
    assert model[0].weight is model[1].weight


def test_what_builds_a_module_gives_its_dtype_and_mode(made):
    problem = made("make_block", ["x: bf16[4096,48]"])
    model = instantiate(problem, "cpu").model
    assert not model.training and model.up.weight.dtype == torch.bfloat16
    assert shrunk(problem).reference().shape[-1] == 48


def test_eval_ends_init(made):
    assert not instantiate(
        made("Several", ["x: f32[64,8]", "k: 2.0"], ["8"], evaluated=True), "meta"
    ).model.training


def test_a_function_that_python_knows_no_names_of_takes_them_by_name(tmp_path):
    path = tmp_path / "p" / "problem.py"
    inputs = ["other: f32[64,32]", "input: f32[64,32]"]
    instance = instantiate(make_problem("torch:sub", inputs, [], path).problem)
    other, first = instance.inputs
    assert torch.equal(instance.reference(), first - other)
    with pytest.raises(ProblemError, match="fails on shapes alone"):
        make_problem("torch.nn.functional:gelu", ["foo: f32[64,32]"], [], path)


def test_what_imported_code_draws_is_an_input(made, file):
    file.write_text(file.read_text() + "\ndef noisy(x):\n    return x + torch.rand_like(x)\n")
    instance = instantiate(made("noisy", ["x: f32[512,48]"]))
    x, draw = instance.inputs
    assert torch.equal(instance.reference(), x + draw)


def test_a_module_of_an_installed_package(tmp_path):
    pytest.importorskip("transformers")
    path = tmp_path / "mlp" / "problem.py"
    config = "config=transformers.LlamaConfig(hidden_size=256, intermediate_size=512)"
    where = "transformers.models.llama.modeling_llama:LlamaMLP"
    problem = make_problem(where, ["x: bf16[4,512,256]"], [config], path).problem
    assert shrunk(problem).inputs[0].shape[-1] < 256
    assert "gate_proj_weight" in instantiate(problem, "meta").arguments.values


@pytest.mark.slow
def test_it_is_written_checked_and_then_verified_with_a_kernel(file):
    # Given a folder elsewhere, when a problem is made of a function there
    folder = file.parent / "elsewhere"
    folder.mkdir()
    inputs = ("--input", "x: f32[2048,96]", "--input", "weight: f32[96]")
    done = beamsearch("new", f"{file}:scaled", *inputs, cwd=folder)

    # Then it says at which sizes it ran, and the problem's floor
    assert done.returncode == 0, done.stderr
    assert "problems/scaled/problem.py: x (2048, 96), weight (96,) -> (2048, 96)" in done.stdout
    assert "on the CPU at x_0=" in done.stdout and "floor" in done.stdout

    # And a kernel is judged by it
    kernel = folder / "kernel.py"
    kernel.write_text(KERNEL)
    told = beamsearch("verify", "problems/scaled", kernel, cwd=folder)
    assert told.returncode == 0, told.stdout + told.stderr

    # And what is there is never overwritten
    before = (folder / "problems/scaled/problem.py").read_text()
    again = beamsearch("new", f"{file}:scaled", *inputs, cwd=folder)
    assert again.returncode == 2 and "is there already; give another" in again.stderr
    assert again.stderr.count("\n") == 1
    assert (folder / "problems/scaled/problem.py").read_text() == before


X = "x: bf16[8,48]"


@pytest.mark.parametrize(
    ("name", "inputs", "init", "message"),
    [
        ("nowhere.py:Block", [X], [], "there is no file"),
        ("nowhere.at.all:Block", [X], [], "no module 'nowhere' can be imported"),
        ("Block", [X], [], "missing a required argument: 'dim'"),
        ("Block", [X], ["dmi=48"], "does not take these --init"),
        ("Block", [X], ["dim=48", "act=silu"], "a text wants quotes"),
        ("Block", [X], ["dim=48", "act='nothing'"], "has no attribute 'nothing'"),
        ("Block", [X], ["dim="], "is no Python value"),
        ("Block", [], ["dim=48"], "say what forward takes"),
        ("Block", [X, X], ["dim=48"], "names x twice"),
        ("Block", ["y: bf16[8,48]"], ["dim=48"], "takes x, mask, scale; it has no y"),
        ("Block", ["x: bf17[8,48]"], ["dim=48"], "no dtype 'bf17'"),
        ("Block", ["x: bf16[8,-48]"], ["dim=48"], "'-48' is no size"),
        ("Block", ["x: bf16[8,48"], ["dim=48"], "neither a tensor nor a value"),
        ("Block", ["x: bf16[def=8,48]"], ["dim=48"], "def has another meaning"),
        ("Block", ["x: bf16[rows,48]"], ["dim=48"], "the size rows has no value"),
        ("Block", [X, "mask: bool[n=8,1]", "scale: f32[n=3]"], ["dim=48"], "n is 8 and 3"),
        ("Block", [X, "scale: f32[]"], ["dim=48"], "choose it with --dtype"),
        (
            "Block",
            ["x: bf16[8,32]"],
            ["dim=48"],
            r"fails on shapes alone with x \(8, 32\): Runtime",
        ),
        ("scaled", [X], [], "also takes weight"),
        ("scaled", [X, "weight: bf16[48]"], ["3"], "takes no --init"),
        ("Missing", [X], [], "there is no Missing; it has .*Block, Several"),
        ("make_nothing", [X], [], "gives a int, and no torch.nn.Module"),
        ("number", [X], [], "is a int: no module and no function"),
    ],
)
def test_what_cannot_be_is_told(file, name, inputs, init, message):
    where = name if ":" in name else f"{file}:{name}"
    with pytest.raises(UsageError, match=message) as error:
        make_problem(where, inputs, init, file.parent / "p" / "problem.py")
    assert "\n" not in str(error.value)


def test_a_file_that_cannot_be_imported_is_told_in_one_line(file):
    file.write_text("import nothing_of_this_name\n")
    with pytest.raises(UsageError, match="cannot be imported: ModuleNotFoundError: No module"):
        make_problem(f"{file}:Block", [X], [], file.parent / "p" / "problem.py")


def test_names_of_folders():
    assert [snake_case(name) for name in ("LlamaMLP", "MyBlock", "rope", "RMSNorm2d")] == [
        "llama_mlp",
        "my_block",
        "rope",
        "rms_norm2d",
    ]

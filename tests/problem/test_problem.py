"""Problems as a user names and writes them."""

import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from beamsearch.errors import KernelError, ProblemError
from beamsearch.judge.verification.oracle import find_updates
from beamsearch.problem.instance import instantiate
from beamsearch.problem.kernel import (
    bind,
    bound_by_position,
    check_source,
    fingerprint,
    interpretation,
)
from beamsearch.problem.least_work import least_work
from beamsearch.problem.problem import find_problem, list_problems, load_module
from beamsearch.problem.shrink import SMOKE_ELEMENTS, count_elements, shrink

# Least bytes in GB and FLOPs in G, by arithmetic on the shapes: every input and parameter read
# once, the output written once, two operations a multiply-add, none for an output that no input
# reaches. The flop counter knows only products, so pointwise work counts nothing.
LEAST = {
    "04": (4.297, 4.295),
    "36": (7.516, 0),
    "43": (2.391, 0),
    "77": (0.302, 28.991),
    "82": (1.070, 4.794),
}


@pytest.mark.parametrize("prefix", LEAST)
def test_least_work_is_the_arithmetic(prefix):
    problem = find_problem(prefix)
    work = least_work(problem)
    assert problem.dtype == "bfloat16"
    assert (work.least_bytes / 1e9, work.flops / 1e9) == pytest.approx(LEAST[prefix], abs=6e-4)


@pytest.mark.parametrize("prefix", LEAST)
def test_a_shrunk_problem_keeps_its_structure(prefix):
    problem = find_problem(prefix)
    small = shrink(problem)
    work = least_work(small)
    full, reduced = instantiate(problem, "meta"), instantiate(small, "meta")
    for name in ("kernel_size", "stride", "padding", "dilation", "eps"):
        if name in full.arguments.values:
            assert reduced.arguments.values[name] == full.arguments.values[name]
    assert work.least_bytes < 200_000
    assert set(reduced.arguments.values) == set(full.arguments.values)


def test_names_are_found_in_full_in_part_by_folder_and_by_file(tmp_path):
    name = "43_Max_Pooling_3D"
    folder = find_problem(name).path.parent
    shutil.copytree(folder, tmp_path / "mine")
    assert find_problem("43").name == name
    assert find_problem("77_conv").name.startswith("77_conv_transposed")
    assert find_problem("4").name.startswith("04_Matrix"), "a number is a whole number"
    assert find_problem(str(tmp_path / "mine")).name == "mine"
    assert find_problem(str(tmp_path / "mine" / "problem.py")).name == "mine"


@pytest.mark.parametrize(
    ("name", "near"), [("43_Max_Pooling_4D", "43_Max_Pooling_3D"), ("conv", "82_conv"), ("", "04_")]
)
def test_an_unknown_or_ambiguous_name_lists_the_near_ones(name, near):
    with pytest.raises(ProblemError, match=near):
        find_problem(name)


def test_all_are_listed_the_five_first():
    names = list_problems()
    assert [name[:2] for name in names[:5]] == sorted(LEAST)
    assert {"softmax", "matmul", "flash_attention"} < set(names[5:])


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("x = (", "does not parse"),
        ("import torch", "lacks Model"),
        ("raise RuntimeError('no such thing')", "no such thing"),
    ],
)
def test_a_file_that_is_no_problem_says_why(tmp_path, source, says):
    path = tmp_path / "problem.py"
    path.write_text(source)
    with pytest.raises(ProblemError, match=says):
        find_problem(str(path))


PLAIN = """
import torch
from dataclasses import dataclass
@dataclass
class Factor:
    value: float = 2.0
class Model(torch.nn.Module):
    def forward(self, x):
        return {returned}
def get_inputs(): return {inputs}
def get_init_inputs(): return []
"""


@pytest.mark.parametrize(
    ("returned", "inputs", "says"),
    [
        ("{'a': x}", "[torch.rand(8)]", "its output is a dict"),
        ("(x, (x, x))", "[torch.rand(8)]", "output 1 of the reference is a tuple"),
        ("torch.fft.rfft(x)", "[torch.rand(8)]", "its output is complex"),
        ("x.mul_(2)", "[torch.rand(8)]", "writes into its input x"),
        ("x.t().add_(2)", "[torch.rand(8, 8)]", "writes into its input x"),
        ("x[0] + x[1]", "[[torch.rand(8), torch.rand(8)]]", "a list of tensors as input 0"),
    ],
)
def test_what_no_kernel_could_be_held_against_is_told(tmp_path, returned, inputs, says):
    path = tmp_path / "problem.py"
    path.write_text(PLAIN.format(returned=returned, inputs=inputs))
    with pytest.raises(ProblemError, match=says):
        least_work(find_problem(str(path)))


def test_a_file_may_define_dataclasses(tmp_path):
    path = tmp_path / "problem.py"
    path.write_text(
        PLAIN.format(returned="x.clone().mul_(Factor().value)", inputs="[torch.rand(8)]")
    )
    instance = instantiate(find_problem(str(path)))
    assert torch.equal(instance.reference(), 2 * instance.inputs[0])


def test_a_reference_that_compiles_itself_is_made_again(tmp_path):
    path = tmp_path / "problem.py"
    path.write_text(
        "import torch\n@torch.compile(backend='eager')\ndef twice(x): return x + x\n"
        + PLAIN.format(returned="twice(x)", inputs="[torch.rand(8)]")
    )
    problem = find_problem(str(path))
    for seed in range(3):
        instance = instantiate(problem, seed=seed)
        assert torch.equal(instance.reference(), 2 * instance.inputs[0])


MODEL = """
import torch, torch.nn as nn
n = 32
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.drop = nn.BatchNorm1d(8), nn.Dropout({chance})
        {last}
    def forward(self, x):
        return self.drop(self.norm(x))
def get_inputs(): return [torch.rand(n, 8)]
def get_init_inputs(): return []
"""


@pytest.mark.parametrize("says", [("0.0", ""), ("0.5", "self.eval()")])
def test_a_dropout_layer_needs_no_mask(tmp_path, says):
    path = tmp_path / "problem.py"
    path.write_text(MODEL.format(chance=says[0], last=says[1]))
    assert least_work(find_problem(str(path))).input_shapes == {"x": (32, 8)}


def test_a_layer_that_drops_values_drops_none(tmp_path):
    path = tmp_path / "problem.py"
    path.write_text(MODEL.format(chance=0.5, last=""))
    instance = instantiate(find_problem(str(path)))
    assert instance.model.training and bool((instance.reference() != 0).all())


ATTENTION = """
import torch
heads, length, size = 4, 96, 32
class Model(torch.nn.Module):
    def forward(self, q, k, v):
        attend = torch.nn.functional.scaled_dot_product_attention
        return attend(q, k, v, is_causal={causal})
def get_inputs(): return [torch.rand(2, heads, n, size) for n in (length, {keys}, {keys})]
def get_init_inputs(): return []
"""


@pytest.mark.parametrize(
    ("causal", "keys", "pairs"),
    [(False, 96, 96 * 96), (False, 7, 96 * 7), (True, 96, 96 * 97 // 2), (True, 7, 28 + 89 * 7)],
)
def test_keys_that_a_query_may_not_see_are_no_work(tmp_path, causal, keys, pairs):
    path = tmp_path / "problem.py"
    path.write_text(ATTENTION.format(causal=causal, keys=keys))
    assert least_work(find_problem(str(path))).flops == 2 * 2 * 4 * pairs * 2 * 32


MASKED = """
import torch, torch.nn as nn
length = 64
class Model(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.register_buffer("mask", {mask})
    def forward(self, q, k, v):
        scores = (q @ k.transpose(-2, -1)).masked_fill(self.mask == 0, float("-inf"))
        return torch.softmax(scores, -1) @ v
def get_inputs(): return [torch.rand(2, 3, length, 16) for _ in range(3)]
def get_init_inputs(): return [length]
"""


@pytest.mark.parametrize(
    ("mask", "pairs"),
    [
        ("torch.tril(torch.ones(n, n))", 64 * 65 // 2),
        ("torch.triu(torch.ones(n, n))", 64 * 65 // 2),
        ("torch.ones(n, n)", 64 * 64),
        ("torch.tril(torch.ones(n, n)).triu(-3)", 64 * 64),  # a band: no triangle
    ],
)
def test_products_that_a_mask_hides_are_no_work(tmp_path, mask, pairs):
    path = tmp_path / "problem.py"
    path.write_text(MASKED.format(mask=mask))
    assert least_work(find_problem(str(path))).flops == 2 * 3 * 2 * pairs * 2 * 16


HIDDEN = """
import torch, torch.nn as nn
length = 64
class Model(nn.Module):
    def forward(self, a, b): return torch.relu({expression})  # mask
def get_inputs(): return [torch.rand(length, length) for _ in range(2)]
def get_init_inputs(): return []
"""


@pytest.mark.parametrize(
    ("expression", "share"),
    [("torch.tril(a @ b)", 65 / 128), ("torch.triu(a, 1) @ b", 63 / 128), ("a @ b - 5", 1)],
)
def test_what_is_nothing_by_chance_counts(tmp_path, expression, share):
    path = tmp_path / "problem.py"
    path.write_text(HIDDEN.format(expression=expression))
    assert least_work(find_problem(str(path))).flops == round(2 * 64**3 * share)


RECURRENT = """
import torch, torch.nn as nn
steps, batch, features, hidden = 512, 16, 64, 128
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.{layer}(features, hidden, 2, bidirectional={both}, batch_first={first})
    def forward(self, x):
        output, state = self.layer(x)
        return output, *(state if isinstance(state, tuple) else [state])
def get_inputs():
    return [torch.rand((batch, steps, features) if {first} else (steps, batch, features))]
def get_init_inputs(): return []
"""


@pytest.mark.parametrize("layer", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize(("both", "first"), [(True, False), (False, True)])
def test_recurrent_layers_are_shrunk_without_their_steps(tmp_path, layer, both, first):
    path = tmp_path / "problem.py"
    path.write_text(RECURRENT.format(layer=layer, both=both, first=first))
    problem = find_problem(str(path))
    small = shrink(problem)
    instance = instantiate(small)
    real = sum(tensor.numel() for tensor in (*instance.inputs, *instance.reference()))
    assert real == count_elements(small) <= SMOKE_ELEMENTS
    began = time.monotonic()
    for _ in range(5):
        count_elements(problem)
    assert time.monotonic() - began < 1, "five passes of 512 steps take several seconds"


def test_a_module_that_reads_values_while_it_is_built_needs_no_memory_afterwards(tmp_path):
    path = tmp_path / "problem.py"
    path.write_text(MODEL.format(chance=0.0, last="self.last = torch.linspace(0, 1, n)[-1].item()"))
    instance = instantiate(find_problem(str(path)), "meta")
    assert instance.model.last == 1.0
    tensors = (*instance.inputs, *instance.model.parameters(), *instance.model.buffers())
    assert {tensor.device.type for tensor in tensors} == {"meta"}


def test_a_reference_in_training_tells_its_updates_and_keeps_its_buffers(tmp_path):
    path = tmp_path / "problem.py"
    path.write_text(MODEL.format(chance=0.0, last=""))
    instance = instantiate(find_problem(str(path)))
    assert find_updates(instance) == (
        "norm.running_mean",
        "norm.running_var",
        "norm.num_batches_tracked",
    )
    telling = replace(instance, updates=("norm.num_batches_tracked",))
    for _ in range(2):
        output, seen = telling.reference()
        assert output.mean().abs() < 1e-6, "by the batch's own statistics"
        assert seen == 1
    assert not instance.model.norm.running_mean.any()
    path.write_text(MODEL.format(chance=0.0, last="self.eval()"))
    assert find_updates(instantiate(find_problem(str(path)))) == ()


def test_dtype_is_the_files_then_the_users(tmp_path):
    source = find_problem("43").source.replace("DTYPE = torch.bfloat16\n", "")
    (tmp_path / "problem.py").write_text(source)
    problem = find_problem(str(tmp_path))
    assert problem.dtype == "float32"
    assert instantiate(problem.with_dtype("float16"), "meta").inputs[0].dtype.itemsize == 2
    with pytest.raises(ProblemError, match="bfloat16"):
        problem.with_dtype("float8")


CLASH = """
import torch, torch.nn as nn
class Part(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.weight = nn.Parameter(torch.full((2,), float(scale)))
        self.scale = scale
    def forward(self, x):
        return x * self.weight
class Model(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.first, self.second = Part(3), Part(5)
        self.bias = nn.Parameter(torch.ones(2))
    def forward(self, x, bias):
        return self.second(self.first(x)) + bias
def get_inputs():
    return [torch.rand(4, 2), torch.zeros(2)]
def get_init_inputs():
    return [7]
"""


def test_binding_follows_the_contracts_order_on_a_clash(tmp_path):
    (tmp_path / "problem.py").write_text(CLASH)
    values = instantiate(find_problem(str(tmp_path))).arguments.values
    assert values["bias"].sum() == 0  # forward's parameter, not the model's
    assert values["first_weight"][0] == 3 and values["second_weight"][0] == 5
    assert "weight" not in values  # two of them: the last part is not unique
    assert values["first_scale"] == 3
    assert values["scale"] == 7  # not unique among submodules, so __init__'s argument


def module(source):
    namespace = type("module", (), {})()
    exec(source, namespace.__dict__)
    return namespace


def test_a_kernel_that_may_be_called_in_any_way_gets_everything_by_name(tmp_path):
    (tmp_path / "problem.py").write_text(CLASH)
    arguments = instantiate(find_problem(str(tmp_path))).arguments
    told = bind(module("def kernel_function(x, *args, **kwargs): return args, kwargs"), arguments)
    assert told() == ((), {name: v for name, v in arguments.values.items() if name != "x"})
    told = bind(
        module("def kernel_function(x, /, *args, **kwargs): return args, kwargs"), arguments
    )
    assert told()[0] == () and "x" not in told()[1]
    told = bind(module("def kernel_function(x, **kwargs): return kwargs"), arguments)
    assert told() == {}, "it may pass them on"


def test_a_kernel_that_takes_any_number_gets_inputs_and_weights_in_order(tmp_path):
    (tmp_path / "problem.py").write_text(CLASH)
    arguments = instantiate(find_problem(str(tmp_path))).arguments
    values = arguments.values
    names = ("first_weight", "second_weight")
    weights = [values[name] for name in names]
    told = bind(module("def kernel_function(*args): return args"), arguments)()
    assert [id(v) for v in told] == [id(v) for v in (values["x"], values["bias"], *weights)]
    taken = bound_by_position(module("def kernel_function(x, *args): pass"), arguments)
    assert taken == {f"args[{n}]": name for n, name in enumerate(("bias", *names))}
    told = bind(module("def kernel_function(bias, scale, k=3, *args): return args"), arguments)()
    assert [id(v) for v in told] == [id(v) for v in (values["x"], *weights)]


def test_a_name_that_begins_one_of_ours_means_it(tmp_path):
    """A module's own parameters come before those of its parts: places alone would swap them."""
    (tmp_path / "problem.py").write_text(CLASH.replace("x, bias", "x, shift"))
    arguments = instantiate(find_problem(str(tmp_path))).arguments
    source = "def kernel_function(x, second, s, b, f): return second, s, b, f"
    told = bound_by_position(module(source), arguments)
    assert told == {"second": "second_weight", "b": "bias", "f": "first_weight", "s": "shift"}
    assert bound_by_position(module("def kernel_function(x, sh): pass"), arguments) == {
        "sh": "shift"
    }
    assert bound_by_position(module("def kernel_function(x, y): pass"), arguments) == {"y": "shift"}


def test_a_name_that_cannot_be_bound_lists_what_can(tmp_path):
    (tmp_path / "problem.py").write_text(CLASH)
    arguments = instantiate(find_problem(str(tmp_path))).arguments
    call = bind(
        module("def kernel_function(x, first_weight, extra=1): return x * first_weight"), arguments
    )
    assert call().shape == (4, 2)
    with pytest.raises(KernelError, match="asks for `y`.*first_weight"):
        bind(module("def kernel_function(y): return y"), arguments)


def test_model_new_gets_the_references_weights(tmp_path):
    (tmp_path / "problem.py").write_text(CLASH)
    instance = instantiate(find_problem(str(tmp_path)))
    source = CLASH.replace("class Model(", "class ModelNew(")
    assert bind(module(source), instance.arguments)().equal(instance.reference())
    renamed = source.replace("self.second", "self.other")
    with pytest.raises(KernelError, match=r"other\.weight.*second\.weight"):
        bind(module(renamed), instance.arguments)


def test_fingerprint_sees_code_only():
    plain = "def kernel_function(x):\n    return x + 1\n"
    dressed = '"""Docs."""\n\ndef kernel_function( x ):\n    "why"\n    # how\n    return (x + 1)\n'
    assert fingerprint(plain) == fingerprint(dressed)
    assert fingerprint(plain) != fingerprint(plain.replace("1", "2"))


def test_an_interpretation_leaves_out_what_the_interpreter_never_sees():
    plain = "def kernel_function(x):\n    run[(1,)](tl.load(x, eviction_policy='evict_first'))\n"
    tuned = "def kernel_function(x):\n    run[(1,)](tl.load(x), num_warps=4)\n"
    assert fingerprint(plain) != fingerprint(tuned)
    assert interpretation(plain) == interpretation(tuned)
    assert interpretation(plain) != interpretation(plain.replace("(1,)", "(2,)"))
    # A kernel that takes the number of warps as an argument, or a grid that reads it, may tell.
    for reads in ("def helper(num_warps): pass\n", "grid = lambda meta: meta['num_warps']\n"):
        two, four = (f"{reads}run[(1,)](num_warps={number})\n" for number in (2, 4))
        assert interpretation(two) != interpretation(four)
    # What is no launch may do anything with it, and what is no constant may do anything at all.
    for call in ("dict(num_warps=2)", "run[(1,)](num_warps=n)"):
        other = call.replace("=2", "=4").replace("=n", "=m")
        assert interpretation(call) != interpretation(other)


@pytest.mark.parametrize("source", ["def kernel(x): pass", "def f(:", "x = 1"])
def test_a_kernel_without_an_entry_point_is_refused(source):
    with pytest.raises(KernelError):
        check_source(source)


def test_problem_files_stand_where_the_package_finds_them():
    assert Path(find_problem("04").path).parent.joinpath("input_kernel.py").is_file()


def test_too_little_memory_for_a_problem_is_told_with_what_to_do(tmp_path):
    (tmp_path / "problem.py").write_text(
        "import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
        "        return x\n\n\ndef get_inputs():\n"
        "    if torch.get_default_device().type != 'meta':\n"
        "        raise torch.OutOfMemoryError('CUDA out of memory: 4 GiB wanted')\n"
        "    return [torch.rand(8)]\n\n\ndef get_init_inputs():\n    return []\n"
    )
    problem = find_problem(str(tmp_path / "problem.py"))
    with pytest.raises(ProblemError) as told:
        instantiate(problem)
    assert "does not fit into the memory of cpu: CUDA out of memory: 4 GiB wanted" in str(
        told.value
    )
    assert "--scale" in str(told.value) and "fails to build" not in str(told.value)


def test_a_problem_is_loaded_by_several_threads_at_once(tmp_path):
    source = "import time\nfrom dataclasses import dataclass\n\ntime.sleep(0.02)\n\n\n"
    source += "@dataclass\nclass Sizes:\n    n: int = 3\n"
    (tmp_path / "problem.py").write_text(source)
    problem = replace(find_problem("43"), path=tmp_path / "problem.py", source=source)
    with ThreadPoolExecutor(8) as threads:
        modules = list(threads.map(load_module, [problem] * 16))
    assert [module.Sizes().n for module in modules] == [3] * 16

"""Operations of a plan, run into memory that is there, against torch's own."""

import pytest
import torch

from beamsearch.judge.operations import COMPUTE, MOVES, check, prepare
from beamsearch.records.plan import DType, Operation, View

SHAPE = (3, 4)
ONE = (
    *("neg", "abs", "sqrt", "rsqrt", "reciprocal", "exp", "exp2", "log", "log2", "sin", "cos"),
    *("relu", "sigmoid", "tanh", "floor", "ceil", "round"),
)


def cases():
    """Every operation with arguments: X and Y are (3, 4), B a mask, I indices."""
    for name in ONE:
        yield f"{name}.default", ["X"], {}
        yield f"{name}_.default", ["X"], {}
    for name in ("add", "sub", "mul", "div"):
        for inplace in ("", "_"):
            yield f"{name}{inplace}.Tensor", ["X", "Y"], {}
            yield f"{name}{inplace}.Tensor", ["X", 2.5], {}
            yield f"{name}{inplace}.Scalar", ["X", 1.5], {}
    yield "add.Tensor", ["X", "Y"], {"alpha": 3}
    yield "rsub.Scalar", ["X", 1.0], {}
    yield "pow.Tensor_Scalar", ["X", 3], {}
    yield "pow_.Scalar", ["X", 3], {}
    yield "pow.Scalar", [3.0, "X"], {}
    yield "pow.Tensor_Tensor", ["X", "Y"], {}
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        yield f"{name}.Tensor", ["X", "Y"], {}
        yield f"{name}.Scalar", ["X", 0.6], {}
    yield "remainder.Scalar", ["X", 0.3], {}
    yield "div.Tensor_mode", ["X", "Y"], {"rounding_mode": "floor"}
    yield "div.Scalar_mode", ["X", 0.3], {"rounding_mode": "trunc"}
    for inplace in ("", "_"):
        yield f"clamp{inplace}.default", ["X", 0.6, None], {}
        yield f"clamp_min{inplace}.default", ["X", 0.6], {}
        yield f"clamp_max{inplace}.default", ["X", 0.6], {}
    yield "maximum.default", ["X", "Y"], {}
    yield "minimum.default", ["X", "Y"], {}
    yield "where.self", ["B", "X", "Y"], {}
    yield "sum.default", ["X"], {}
    yield "sum.dim_IntList", ["X", [1], True], {"dtype": DType(dtype="float64")}
    yield "mean.default", ["X"], {}
    yield "mean.dim", ["X", [0]], {}
    yield "amax.default", ["X", [1]], {}
    yield "amin.default", ["X", [0, 1]], {}
    yield "prod.default", ["X"], {}
    yield "prod.dim_int", ["X", 1], {}
    yield "var.correction", ["X", [1]], {"correction": 1}
    yield "std.correction", ["X", [0]], {"correction": 0, "keepdim": True}
    yield "arange.default", [5], {"dtype": DType(dtype="float32"), "device": "cuda:0"}
    yield "arange.start", [2, 5], {"pin_memory": False}
    yield "arange.start_step", [0, 9, 2], {"dtype": DType(dtype="int32")}
    yield "clone.default", ["X"], {"memory_format": "torch.contiguous_format"}
    yield "_to_copy.default", ["X"], {"dtype": DType(dtype="bfloat16"), "device": "cuda:0"}
    yield "repeat.default", ["X", [2, 1, 3]], {}
    yield "cat.default", [["X", "Y"], 1], {}
    yield "stack.default", [["X", "Y"]], {}
    yield "constant_pad_nd.default", ["X", [1, 2], 7.0], {}
    yield "flip.default", ["X", [0]], {}
    yield "roll.default", ["X", [1], [1]], {}
    yield "index_select.default", ["X", 1, "I"], {}
    yield "zero_.default", ["X"], {}


CASES = list(cases())


def view(number, tensor):
    """The record of a tensor that lies on a buffer of its own."""
    told = (str(tensor.dtype).removeprefix("torch."), tensor.shape, tensor.stride())
    return View(buffer=number, dtype=told[0], offset=0, size=tuple(told[1]), stride=told[2])


def given(name):
    torch.manual_seed(1)
    x, y = torch.rand(SHAPE).t().contiguous().t() + 0.1, torch.rand(SHAPE) + 0.1
    return {"X": x, "Y": y, "B": x > y, "I": torch.tensor([2, 0, 2])}[name]


def told(value):
    """An argument as torch takes it; a name stands for its tensor."""
    if isinstance(value, list):
        return [told(item) for item in value]
    if isinstance(value, DType):
        return getattr(torch, value.dtype)
    return given(value) if isinstance(value, str) and len(value) == 1 else value


def written(value):
    """An argument as a plan has it."""
    if isinstance(value, list):
        return [written(item) for item in value]
    number = "XYBI".find(value) if isinstance(value, str) and len(value) == 1 else -1
    return view(number, given(value)) if number >= 0 else value


def test_every_operation_has_a_case():
    assert {f"aten.{name}" for name, _, _ in CASES} == MOVES | COMPUTE
    assert not MOVES & COMPUTE


@pytest.mark.parametrize(("name", "arguments", "named"), CASES)
def test_an_operation_writes_its_target_what_torch_gives(name, arguments, named):
    packet, overload = name.split(".")
    function = getattr(getattr(torch.ops.aten, packet), overload)
    assert str(function) == f"aten.{name}"
    left_out = ("device", "pin_memory", "memory_format")
    wanted = function(
        *told(arguments), **{k: told(v) for k, v in named.items() if k not in left_out}
    )
    in_place = packet.endswith("_") and not packet.startswith("_")
    tensors = [given(letter) for letter in "XYBI"]
    if in_place:
        target, number = tensors[0], 0
    else:
        # Strided, and all bits set: what is left unwritten shows.
        room = torch.full((*wanted.shape, 2), -1).to(wanted.dtype)
        target, number = room[..., 0], len(tensors)
        tensors.append(target)
    operation = Operation(
        name=f"aten.{name}",
        arguments=written(arguments),
        named=named,
        targets=[view(number, target)],
    )
    address = target.data_ptr()
    with torch.inference_mode():
        prepare(operation, lambda place: tensors[place.buffer])()
    assert target.data_ptr() == address
    assert torch.equal(target, wanted)


def operation(name, arguments, targets):
    return Operation(name=name, arguments=arguments, targets=targets)


X = view(0, given("Y"))


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (operation("aten.mm.default", [X, X], [X]), "may not hold"),
        (operation("aten.add.out", [X, X], [X]), "may not hold"),
        (operation("aten.exp.default", [X], []), "0 targets"),
        (operation("aten.exp_.default", [X], [view(1, given("Y"))]), "not its first argument"),
        (operation("aten.sum.default", [X], [X]), "its target is"),
        (operation("aten.exp.default", [X], [view(1, given("Y").double())]), "its target is"),
        (operation("aten.add.Tensor", [X], [X]), "does not take"),
        (operation("aten.flip.default", [X, [7]], [X]), "does not take"),
    ],
)
def test_what_is_not_listed_or_does_not_fit_is_refused(record, words):
    with pytest.raises(ValueError, match=words):
        check(record)

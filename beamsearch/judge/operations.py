"""The torch operations that a plan may hold, and how one is run into memory that is there.

The two lists are what a capture lets through and what the runner runs: nothing else.
"""

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from beamsearch.records.plan import DType, Operand, Operation, View

_MOVES = (
    "clone.default _to_copy.default repeat.default cat.default stack.default zero_.default "
    "constant_pad_nd.default flip.default roll.default"
)
MOVES = frozenset(f"aten.{name}" for name in _MOVES.split())
"""They move data, or set it."""
_ON_ONE = (
    "neg abs sqrt rsqrt reciprocal exp exp2 log log2 sin cos relu sigmoid tanh floor ceil round "
    "clamp clamp_min clamp_max"
)
_ON_TWO = "add add_ sub sub_ mul mul_ div div_ eq ne lt le gt ge"
_OTHERS = (
    "rsub.Scalar pow.Tensor_Scalar pow.Scalar pow.Tensor_Tensor pow_.Scalar remainder.Scalar "
    "div.Tensor_mode div.Scalar_mode maximum.default minimum.default where.self sum.default "
    "sum.dim_IntList mean.default mean.dim var.correction amax.default amin.default prod.default "
    "prod.dim_int std.correction arange.default arange.start arange.start_step index_select.default"
)
COMPUTE = frozenset(
    f"aten.{name}"
    for name in (
        *(f"{name}{inplace}.default" for name in _ON_ONE.split() for inplace in ("", "_")),
        *(f"{name}.{kind}" for name in _ON_TWO.split() for kind in ("Tensor", "Scalar")),
        *_OTHERS.split(),
    )
)
"""They compute: library work, of which a kernel may have a little. To gather is all that an
embedding does."""
_LEFT_OUT = frozenset(("device", "layout", "pin_memory", "memory_format", "non_blocking"))
"""Arguments that say where a result lies, which the target says."""


def prepare(operation: Operation, tensor: Callable[[View], torch.Tensor]) -> Callable[[], object]:
    """What runs an operation into its target; `tensor` opens a view.

    Raises ValueError for an operation that is on no list, or whose result would not fit its target.
    """
    check(operation)
    arguments, named = _decode(operation, tensor)
    target = tensor(operation.targets[0])
    overload = _overload(operation.name)
    if _is_in_place(operation.name):
        return lambda: overload(*arguments, **named)
    if (into := _into(operation.name)) is not None:
        return lambda: into(*arguments, **named, out=target)
    if operation.name == "aten._to_copy.default":
        return lambda: target.copy_(arguments[0])
    # What is left makes constants, from numbers alone.
    return lambda: target.copy_(overload(*arguments, **named, device=target.device))


def check(operation: Operation) -> None:
    """Raises ValueError as `prepare`; it needs no memory.

    A result of another size would make torch move the target to other memory.
    """
    name, targets = operation.name, operation.targets
    if name not in MOVES | COMPUTE:
        raise ValueError(f"a plan may not hold the operation {name}")
    if len(targets) != 1:
        raise ValueError(f"{name} has {len(targets)} targets")
    if _is_in_place(name) and operation.arguments[:1] != targets:
        raise ValueError(f"{name} has a target that is not its first argument")
    arguments, named = _decode(operation, _on_meta)
    if name.startswith("aten.arange."):
        named["device"] = "meta"
    try:
        result = _overload(name)(*arguments, **named)
    except (RuntimeError, TypeError, IndexError) as error:
        raise ValueError(f"{name} does not take its arguments: {error}") from error
    target = targets[0]
    told = (tuple(result.shape), str(result.dtype).removeprefix("torch."))
    if told != (target.size, target.dtype):
        raise ValueError(f"{name} gives {told}, and its target is {(target.size, target.dtype)}")


def _decode(
    operation: Operation, tensor: Callable[[View], torch.Tensor]
) -> tuple[list[Any], dict[str, Any]]:
    named = {k: _operand(v, tensor) for k, v in operation.named.items() if k not in _LEFT_OUT}
    return [_operand(value, tensor) for value in operation.arguments], named


def _operand(value: Operand, tensor: Callable[[View], torch.Tensor]) -> Any:
    if isinstance(value, list):
        return [_operand(item, tensor) for item in value]
    if isinstance(value, View):
        return tensor(value)
    if isinstance(value, DType):
        return getattr(torch, value.dtype)
    return value


def _on_meta(view: View) -> torch.Tensor:
    dtype = getattr(torch, view.dtype)
    return torch.empty_strided(view.size, view.stride, dtype=dtype, device="meta")


def _is_in_place(name: str) -> bool:
    return name.split(".")[1].endswith("_")


@cache
def _overload(name: str) -> Any:
    _, packet, overload = name.split(".")
    return getattr(getattr(torch.ops.aten, packet), overload)


@cache
def _into(name: str) -> Any:
    """The overload that takes the same and writes into `out`; none where there is none."""
    packet = getattr(torch.ops.aten, name.split(".")[1])
    wanted = [(a.name, str(a.type)) for a in _overload(name)._schema.arguments]
    for overload in (getattr(packet, other) for other in packet.overloads()):
        taken = overload._schema.arguments
        rest = [(a.name, str(a.type)) for a in taken if not a.is_out]
        if len(taken) == len(rest) + 1 and rest == wanted:
            return overload
    return None

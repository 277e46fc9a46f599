"""Work of a reference that algebra removes, seen in the operations of one call on `meta`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch

from beamsearch.problem.dispatch_modes import QuickMode
from beamsearch.problem.instance import Instance

PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "convolution")
SUMS = ("mean", "sum")
REDUCTIONS = (*SUMS, "amax", "amin", "max", "min", "prod", "logsumexp", "argmax", "argmin")
SOFTMAX = ("_softmax", "_log_softmax")
LINEAR = (
    *("mul", "div", "add", "sub", "neg", "clone", "_to_copy", "view", "_unsafe_view", "t"),
    *("unsqueeze", "squeeze", "permute", "transpose", "expand", "reshape", "alias"),
)
"""Operations behind which a sum may still be taken first, where nothing but constants or weights is
added or multiplied with."""
MOVED = ("_to_copy", "clone", "stack", "cat")
"""Operations that compute nothing: unread, they are by-products of how PyTorch takes a layer
apart."""
SHARE = 0.01
"""Of the largest tensor's elements: unused results below that are by-products."""


@dataclass(frozen=True, eq=False)
class Step:
    """One operation as it was met."""

    name: str
    """Without its overload: `mean`."""
    inputs: list[torch.Tensor]
    outputs: list[torch.Tensor]
    arguments: Sequence[Any]
    is_view: bool
    """Whether it computes nothing."""


class Steps(QuickMode):  # type: ignore[no-untyped-call]
    """Notes every operation. The tensors are held, so that none takes another's identity."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.steps: list[Step] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Do the operation, and note it."""
        result = func(*args, **(kwargs or {}))
        given = _tensors([*args, *(kwargs or {}).values()])
        name = func.name().partition("::")[2].partition(".")[0].rstrip("_")
        self.steps.append(Step(name, given, _tensors([result]), args, func.is_view))
        return result


def removable_work(instance: Instance) -> list[str]:
    """What of a reference on `meta` need not be computed, a sentence each.

    Results that nothing reads; sums, maxima and softmax along dimensions of one element; sums over
    the output of a product, which can be taken over its operand first (a sum of sums is one sum).
    """
    with torch.no_grad(), Steps() as seen:
        result = instance.model(*instance.inputs)
    return list(dict.fromkeys([*_unread(seen.steps, _tensors([result])), *_simpler(seen.steps)]))


def _tensors(values: Sequence[Any]) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, list | tuple):
            found += _tensors(value)
        elif isinstance(value, dict):
            found += _tensors(list(value.values()))
    return found


def _unread(steps: list[Step], results: list[torch.Tensor]) -> Iterator[str]:
    read = {id(tensor) for tensor in results}
    largest = max((t.numel() for step in steps for t in step.outputs), default=1)
    for step in reversed(steps):
        own = {id(tensor) for tensor in step.inputs}
        written = [tensor for tensor in step.outputs if id(tensor) in own]  # in place
        if written or not step.outputs or any(id(tensor) in read for tensor in step.outputs):
            read |= own
        elif step.name in MOVED or step.is_view:
            continue
        elif sum(tensor.numel() for tensor in step.outputs) > SHARE * largest:
            shape = tuple(step.outputs[0].shape)
            yield f"nothing reads the result {shape} of {step.name}"


def _simpler(steps: list[Step]) -> Iterator[str]:
    made = {id(tensor): step for step in steps for tensor in step.outputs}
    for step in steps:
        sources = [made.get(id(tensor)) for tensor in step.inputs] if step.name in PRODUCTS else []
        if any(source is not None and source.name == "diag_embed" for source in sources):
            yield f"{step.name} with a diagonal matrix only scales the other's rows or columns"
    state = {id(tensor) for step in steps for tensor in step.inputs} - made.keys()
    for step in steps:
        along = _along(step)
        if along is None or not step.inputs:
            continue
        shape = tuple(step.inputs[0].shape)
        size = prod(shape[dimension] for dimension in along)
        if size == 1 and along:
            what = "is a constant" if step.name in SOFTMAX else "changes nothing"
            where = ", ".join(map(str, along))
            yield f"{step.name} along dimension {where} of {shape}, of one element, {what}"
            continue
        product = _product(step.inputs[0], made, state) if step.name in SUMS else None
        if product is not None and _is_output(along, shape, product):
            where = ", ".join(map(str, along))
            yield (
                f"{step.name} over dimension {where} of a product ({product.name}): taken over its "
                "operand first, the product is that many times smaller"
            )


def _along(step: Step) -> tuple[int, ...] | None:
    """Dimensions that a reduction or softmax goes along; none for another operation."""
    if step.name not in (*REDUCTIONS, *SOFTMAX) or not step.inputs:
        return None
    count = step.inputs[0].dim()
    given = step.arguments[1] if len(step.arguments) > 1 else None
    if isinstance(given, bool) or given is None or given == []:
        return tuple(range(count))
    if isinstance(given, int):
        given = [given]
    if not isinstance(given, list | tuple) or not all(isinstance(d, int) for d in given):
        return None
    return tuple(sorted(dimension % max(1, count) for dimension in given))


def _product(tensor: torch.Tensor, made: dict[int, Step], state: set[int]) -> Step | None:
    """The product that a tensor is, up to constant factors and summands."""
    while (step := made.get(id(tensor))) is not None:
        if step.name in PRODUCTS:
            return step
        others = [other for other in step.inputs if other is not tensor]
        varying = [other for other in others if id(other) not in state]
        is_linear = step.name in LINEAR and len(varying) == 1
        if not is_linear or (step.name == "div" and varying[0] is not step.inputs[0]):
            return None
        tensor = varying[0]
    return None


def _is_output(along: tuple[int, ...], shape: tuple[int, ...], product: Step) -> bool:
    """Whether the sum goes over dimensions of the product's own output, no batch of it: rows,
    columns, channels, or positions of a convolution."""
    out = tuple(product.outputs[0].shape)
    return len(shape) == len(out) and all(dimension > 0 or len(out) == 2 for dimension in along)

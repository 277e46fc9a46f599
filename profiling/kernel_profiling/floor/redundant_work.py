"""What a reference gives away: outputs, inputs and weights that make no difference, as measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kernel_profiling.profile import GivesAway

if TYPE_CHECKING:
    import torch

QUIET = 8
"""Draws in a row that change nothing before what is left is believed. An element that is zero by
chance in a share p of the draws survives n of them with p^n, and a tensor of such elements would
still lose some in each."""
MOST_DRAWS = 64
"""More than a window of 3 x 3 x 3 has elements: in each draw another may be the largest."""
OWN_DRAWS = 3
"""Draws as they are, before inputs that seem to make no difference are pushed to extremes."""


@dataclass(frozen=True)
class Draw:
    """A reference on one draw of its inputs and weights."""

    call: Callable[[], list[torch.Tensor]]
    """Runs the reference on `tensors`, under autograd."""
    tensors: dict[str, torch.Tensor]
    """Inputs and parameters by name; the reference reads these very tensors."""


@dataclass
class _Seen:
    """Boolean masks of what was true of every element in every draw so far."""

    zero: list[Any] = field(default_factory=list)
    same: list[Any] = field(default_factory=list)
    first: list[Any] = field(default_factory=list)
    unused: dict[str, Any] = field(default_factory=dict)
    fixed: dict[str, Any] = field(default_factory=dict)
    given: dict[str, Any] = field(default_factory=dict)
    repeated: dict[tuple[int, int], bool] = field(default_factory=dict)

    def count(self) -> tuple[int, ...]:
        """How much is still true; it only falls."""
        masks = [*self.zero, *self.same, *self.unused.values()]
        return (*(int(mask.sum()) for mask in masks), sum(self.repeated.values()))


def examine(draw: Callable[[int], Draw], *, true_shapes: bool) -> GivesAway:
    """Draw until QUIET draws in a row teach nothing new; `draw` gives the n-th, always the same.

    Which inputs and weights matter comes from gradients: an element whose gradient was zero in
    every draw, though it was pushed far up and down meanwhile, is replaced by other values in the
    end, and counts as unused where no output changes by a bit. A tensor for which that fails, or
    which has no gradient, is not named. Raises what the reference raises.
    """
    seen, quiet, count = _Seen(), 0, 0
    while quiet < QUIET and count < MOST_DRAWS:
        before = seen.count() if count else ()
        one = draw(count)
        _compare_given(one, seen, first=not count)
        if count >= OWN_DRAWS:
            for name, mask in seen.unused.items():
                _push(one.tensors[name], mask, up=bool(count % 2))
        outputs = _run(one, seen, first=not count)
        _compare_outputs(outputs, seen, first=not count)
        count += 1
        quiet = quiet + 1 if seen.count() == before else 0
    elements = max(1, sum(mask.numel() for mask in seen.zero))
    zeros = sum(int(mask.sum()) for mask in seen.zero)
    constants = sum(int(mask.sum()) for mask in seen.same) - zeros
    return GivesAway(
        zero_outputs=zeros / elements,
        constant_outputs=max(0, constants) / elements,
        repeated=[
            f"output {output} along dimension {dimension}"
            for (output, dimension), holds in seen.repeated.items()
            if holds
        ],
        unused=_proven_unused(draw, seen, count),
        fixed=_shares(seen.fixed),
        draws=count,
        true_shapes=true_shapes,
    )


def _compare_given(one: Draw, seen: _Seen, *, first: bool) -> None:
    """Which inputs and parameters are the same in every draw, as the problem makes them."""
    for name, tensor in one.tensors.items():
        if first:
            seen.given[name] = tensor.detach().clone()
        elif name not in seen.fixed:
            seen.fixed[name] = tensor.detach() == seen.given[name]
        else:
            seen.fixed[name] &= tensor.detach() == seen.given[name]


def _push(tensor: torch.Tensor, mask: torch.Tensor, *, up: bool) -> None:
    """The masked elements far above, or below, all others, still different from each other."""
    import torch

    with torch.no_grad():
        far = tensor.abs() * 8 + 8
        tensor.copy_(torch.where(mask, far if up else -far, tensor))


def _run(one: Draw, seen: _Seen, *, first: bool) -> list[torch.Tensor]:
    """The outputs; what has a gradient in this draw is struck off `unused`."""
    import torch

    floats = {name: t for name, t in one.tensors.items() if t.is_floating_point()}
    wanted = {name: t for name, t in floats.items() if first or name in seen.unused}
    for tensor in wanted.values():
        tensor.requires_grad_(True)
    outputs = one.call()
    differentiable = [o for o in outputs if o.requires_grad]
    if not differentiable or not wanted:
        seen.unused.clear()
        return [o.detach() for o in outputs]
    weights = [torch.randn_like(o) for o in differentiable]
    grads = torch.autograd.grad(differentiable, list(wanted.values()), weights, allow_unused=True)
    for (name, tensor), grad in zip(wanted.items(), grads, strict=True):
        without = torch.ones_like(tensor, dtype=torch.bool) if grad is None else grad == 0
        if first:
            seen.unused[name] = without
        else:
            seen.unused[name] &= without
    return [o.detach() for o in outputs]


def _compare_outputs(outputs: list[torch.Tensor], seen: _Seen, *, first: bool) -> None:
    if first:
        seen.first = [output.clone() for output in outputs]
        seen.zero = [output == 0 for output in outputs]
        seen.same = [output == output for output in outputs]  # noqa: PLR0124 - NaN is not itself
        seen.repeated = {
            (number, dimension): True
            for number, output in enumerate(outputs)
            for dimension, size in enumerate(output.shape)
            if size > 1
        }
    for number, output in enumerate(outputs):
        seen.zero[number] &= output == 0
        seen.same[number] &= output == seen.first[number]
    for (number, dimension), holds in seen.repeated.items():
        if holds:
            output = outputs[number]
            whole = bool((output == output.narrow(dimension, 0, 1)).all())
            seen.repeated[number, dimension] = whole


def _proven_unused(draw: Callable[[int], Draw], seen: _Seen, draws: int) -> dict[str, float]:
    """Share of each tensor's elements that were replaced, in two more draws, with no effect."""
    import torch

    proven = {}
    for name, mask in seen.unused.items():
        if not bool(mask.any()):
            continue
        unchanged = True
        for number in (draws, draws + 1):
            one = draw(number)
            with torch.no_grad():
                before = [output.clone() for output in one.call()]
                tensor = one.tensors[name]
                tensor.copy_(torch.where(mask, torch.randn_like(tensor) * 100, tensor))
                after = one.call()
            unchanged &= all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
        if unchanged:
            proven[name] = float(mask.sum()) / mask.numel()
    return proven


def _shares(masks: dict[str, Any]) -> dict[str, float]:
    shares = {name: float(mask.sum()) / mask.numel() for name, mask in masks.items()}
    # A few equal values are chance: half types have few.
    return {name: share for name, share in shares.items() if share > 0.01}

"""How far an output moves when its inputs are rounded otherwise: more than any kernel can help.

A softmax that all but picks one key, or a difference of nearly equal sums, turns the last bit of an
input into many digits of the output. There an honest kernel is outside every fixed tolerance, as
PyTorch's own result is. What is measured here is the reference's: in wide precision on inputs and
parameters that are rounded otherwise, and in the problem's own dtype. Only for an output that is
outside the tolerance; what is within it costs nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from beamsearch.judge.verification.negative_controls import check_controls
from beamsearch.judge.verification.oracle import (
    Change,
    Expected,
    as_outputs,
    run_oracle,
    run_reference,
)
from beamsearch.judge.verification.tolerance import Difference, compare
from beamsearch.problem.instance import Instance

if TYPE_CHECKING:
    import torch

ROUNDINGS = {"float16": 1, "bfloat16": 1}
"""Half units in the last place by which an input is smaller, or not; 16 where none is given. One
rounding of half types is far above what sums in float32 lose. In float32 a sum of d terms, one by
one, errs by sqrt(d) / 2 times what its terms' own rounding does: by 16 times for d = 1024. That is
still 2^-20 of a value, and TF32 loses 2^-11."""
TF32_HALF_UNIT = 2.0**-11
"""Of TF32's ten bits, where products may be in it."""
PAIRS = 8
"""Most pairs of roundings that are tried; what one rounds, its twin leaves. Each pair leaves less
than a fifth of the elements that rounding explains unexplained: of ten thousand, none."""
GAIN = 0.5
"""Another pair is tried where the last one left at most half as many elements wrong. What is wrong
for another reason than rounding stays wrong, and costs few runs of the reference."""
FEW = 2e-3
"""Share of the elements that may be a row or two which no pair has met yet: all pairs are tried."""


@dataclass(frozen=True)
class Source:
    """Where the values of an input set come from, each made when it is needed."""

    instance: Callable[[], Instance]
    other_inputs: Callable[[], tuple[object, ...]]
    """Of another seed, for the controls."""
    wide: torch.dtype
    dtype: str
    """The problem's."""
    seed: int


class Sway:
    """How far each output of one input set moves, as far as it was measured so far.

    Kept with the set: what is measured depends on the set alone, not on who was judged.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._moved: list[torch.Tensor] = []
        self._pairs = 0
        self._proven: set[tuple[int, int]] = set()
        self._lock = threading.Lock()

    def reconsider(
        self, plain: Difference, result: torch.Tensor, index: int, every: list[Expected]
    ) -> Difference:
        """The difference of output `index`, where `plain` is outside the tolerance.

        Whole numbers, and what is infinite or not a number, are wrong however inputs are rounded.
        Raises CannotTell where what excuses this output would excuse a surely wrong one too, and
        OutOfMemoryError.
        """
        if plain.not_finite or not result.is_floating_point():
            return plain
        with self._lock:
            return self._reconsider(plain, result, index, every)

    def _reconsider(
        self, plain: Difference, result: torch.Tensor, index: int, every: list[Expected]
    ) -> Difference:
        instance = self._source.instance()
        left, difference = plain.wrong, plain
        for pairs in range(1, PAIRS + 1):
            if self._pairs < pairs:
                self._measure(instance, every)
            expected = replace(every[index], moved=smooth(self._moved[index]))
            difference = compare(result, expected.oracle, expected.scale, expected.moved)
            if difference.passed:
                self._prove(index, instance, expected)
                return replace(difference, excused=plain.wrong)
            few = 0 < difference.wrong <= FEW * difference.elements
            if difference.wrong > GAIN * left and not few:
                break
            left = difference.wrong
        return difference

    def _measure(self, instance: Instance, every: list[Expected]) -> None:
        """One more pair of roundings; with the first, the reference in the problem's own dtype."""
        source = self._source
        if not self._moved:
            own = as_outputs(run_reference(instance.reference))
            self._moved = [_distance(a, b.oracle) for a, b in zip(own, every, strict=True)]
        for twin in (False, True):
            tf32 = any(item.scale.tf32 for item in every)
            change = rounded_otherwise(source.seed + self._pairs, source.dtype, twin, tf32=tf32)
            outputs = run_oracle(instance, instance.inputs, source.wide, change)
            for moved, output, expected in zip(self._moved, outputs, every, strict=True):
                moved.copy_(moved.maximum(_distance(output, expected.oracle)))
        self._pairs += 1

    def _prove(self, index: int, instance: Instance, expected: Expected) -> None:
        """Surely wrong outputs still fail. Raises CannotTell."""
        if (index, self._pairs) not in self._proven:
            others = run_oracle(instance, self._source.other_inputs(), self._source.wide)
            check_controls(expected, others[index])
            self._proven.add((index, self._pairs))


def rounded_otherwise(seed: int, dtype: str, twin: bool, *, tf32: bool = False) -> Change:
    """Half of the elements smaller by some half units of the dtype's last place, or by one of
    TF32's; the twin, the other half. Smaller, so that a probability of one stays one that a loss
    takes."""
    import torch

    amount = ROUNDINGS.get(dtype, 16) * torch.finfo(getattr(torch, dtype)).eps / 2
    amount = max(amount, TF32_HALF_UNIT) if tf32 else amount

    def change(number: int, tensor: torch.Tensor) -> torch.Tensor:
        generator = torch.Generator(tensor.device).manual_seed((seed << 8) + number & (1 << 63) - 1)
        chosen = torch.empty(tensor.shape, dtype=torch.bool, device=tensor.device)
        chosen.bernoulli_(0.5, generator=generator)
        return torch.where(chosen ^ twin, tensor * (1 - amount), tensor)

    return change


def smooth(moved: torch.Tensor) -> torch.Tensor:
    """Each element at least the median of its row, so that none is strict by luck."""
    import torch

    if moved.dim() == 0 or moved.shape[-1] < 2:
        return moved
    return torch.maximum(moved, moved.median(-1, keepdim=True).values)


def _distance(output: torch.Tensor, oracle: torch.Tensor) -> torch.Tensor:
    """Absolute, in a short type; none where either is not finite."""
    import torch

    difference = (output.to(oracle.dtype) - oracle).abs()
    return torch.nan_to_num(difference, 0.0, 0.0, 0.0).to(torch.bfloat16)

"""One set of inputs with its oracle, and which of them a kernel meets."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from beamsearch.judge.verification.conditioning import Sway
from beamsearch.judge.verification.handout import Handout
from beamsearch.judge.verification.oracle import Expected
from beamsearch.problem.input_values import DISTRIBUTIONS, Distribution
from beamsearch.problem.instance import Instance
from beamsearch.problem.problem import Problem

if TYPE_CHECKING:
    import torch

ORDER: tuple[Distribution, ...] = DISTRIBUTIONS
"""In which order sets are drawn at the true shapes: one of each."""
ALWAYS_DRAWN = 3
"""Sets at the true shapes that every kernel meets: its own inputs, normal ones, and those with
outliers, for nothing else shows statistics of a sample where samples are large. (Timed calls are on
its own inputs too, several times over.) Which of the others it meets follows from the kernel: see
`order_for`."""


@dataclass
class InputSet:
    """Inputs and parameters from one seed, and what the reference makes of them."""

    label: str
    problem: Problem
    seed: int
    distribution: Distribution
    expected: list[Expected]
    """Of what `forward` returns, then of the buffers that it updates."""
    updates: tuple[str, ...] = ()
    """Names of those buffers."""
    instance: Instance | None = None
    """Kept where handouts are copied from it; on a GPU the shared memory is the only copy."""
    shared: Handout | None = None
    """On a GPU: the set in memory, none where it is made anew each time."""
    sway: Sway | None = None
    """How far rounding moves its outputs, where that was asked and is small enough to keep."""

    @property
    def returned(self) -> list[Expected]:
        """What `forward` returns."""
        return self.expected[: len(self.expected) - len(self.updates)]

    @property
    def updated(self) -> dict[str, Expected]:
        """What the buffers hold afterwards that it updates."""
        return dict(zip(self.updates, self.expected[len(self.returned) :], strict=True))

    def results(self, handout: Handout) -> list[torch.Tensor]:
        """What came back, on the judge's memory."""
        return [
            buffer.view(expected.dtype, tuple(expected.oracle.shape))
            for buffer, expected in zip(handout.results, self.returned, strict=True)
        ]


def order_for(
    key: str, seed: int, order: Sequence[Distribution] = ORDER, fixed: int = ALWAYS_DRAWN
) -> tuple[Distribution, ...]:
    """In which order one kernel meets the distributions: what follows the fixed ones is shuffled by
    the kernel's key and the judge's seed.

    A judgement then costs a few sets, no kernel is made for the few, and the kernels of a run meet
    them all; a thorough judgement draws as many as there are.
    """
    first, rest = order[:fixed], order[fixed:]
    hashed = {name: hashlib.sha256(f"{seed}/{key}/{name}".encode()).digest() for name in rest}
    return (*first, *sorted(rest, key=hashed.__getitem__))


def derive_seed(seed: int, problem: Problem, label: str) -> int:
    """The seed of an input set: from the run's, the problem's name, dtype and sizes.

    63 bits, so that it is found by no search over the values that a candidate gets to see.
    """
    sizes = sorted(problem.sizes.items())
    text = f"{seed}/{problem.name}/{problem.dtype}/{sizes}/{label}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) >> 1

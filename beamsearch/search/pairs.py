"""When two times differ: of comparable ones, and of two subjects timed in turn."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

NOISE = 0.01
"""Relative difference below which two times are a tie: ten timings of one kernel on an H200 spread
by up to 1% (median against median)."""
MODELLED_NOISE = 0.2
"""The same of modelled times: of pairs of recorded kernels whose modelled times differ by more, the
measured ones stand in the same order in 79% to 100%, by problem, where the playbook wrote them, and
in less where a model did (docs/without-a-gpu.md has the table)."""
CONFIDENCE = 0.95
TIE = 0.01
"""Ratios this near to 1 are a tie even where the interval is narrower: one kernel in two processes
differs by as much, by where its memory lies."""


def is_win(time: float, best_time: float, noise: float = NOISE) -> bool:
    """Whether a time beats the best by more than the noise."""
    return time < best_time * (1 - noise)


def is_tie(time: float, other: float) -> bool:
    """Whether neither of two times beats the other."""
    return not is_win(time, other) and not is_win(other, time)


@dataclass(frozen=True)
class Ratio:
    """The time of one subject over another's, over all turns: median and confidence interval."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, ratio: float) -> Ratio:
        """One that is known exactly."""
        return cls(ratio, ratio, ratio)

    @property
    def verdict(self) -> Literal["faster", "slower", "tie"]:
        """How the first stands against the second."""
        if self.high < 1 and self.median < 1 - TIE:
            return "faster"
        if self.low > 1 and self.median > 1 + TIE:
            return "slower"
        return "tie"


def paired(times: Sequence[float], others: Sequence[float]) -> Ratio:
    """The ratio of times taken in the same turns.

    The interval is that of the sign test: between the order statistics that a median's coverage of
    at least `CONFIDENCE` takes; of all ratios where there are too few turns for that.
    """
    ratios = sorted(a / b for a, b in zip(times, others, strict=True))
    count = len(ratios)
    cut, tail = 0, 2 * 0.5**count  # how many of the smallest and of the largest are left out
    while cut + 1 < count / 2:
        tail += 2 * math.comb(count, cut + 1) * 0.5**count
        if 1 - tail < CONFIDENCE:
            break
        cut += 1
    return Ratio(statistics.median(ratios), ratios[cut], ratios[-1 - cut])

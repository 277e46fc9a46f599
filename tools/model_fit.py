"""Fitting the analytic model's constants to measured variants, and judging the ranking it gives."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

from beamsearch.records.record import Record
from kernel_profiling.estimate.time_model import Constants, Work, launch_ms
from kernel_profiling.gpus import Gpu

STEPS = (1.6, 1.25, 1.1, 1.04)
"""Factors by which a constant is tried larger and smaller, in turn."""
BOUNDS: dict[str, tuple[float, float]] = {
    "dram_share": (0.8, 0.97),
    "l2_bytes_per_clock": (24.0, 64.0),
    "line_clocks": (0.5, 3.0),
    "integer_clocks": (0.7, 3.0),
    "other_clocks": (0.5, 2.0),
    "shared_clocks": (0.5, 8.0),
    "memory_clocks": (1.0, 12.0),
    "matrix_clocks": (4.0, 64.0),
    "dram_latency": (400.0, 2500.0),
    "l2_latency": (150.0, 800.0),
    "l1_latency": (20.0, 100.0),
    "block_clocks": (100.0, 3000.0),
    "overhead_us": (1.0, 8.0),
    "power": (1.5, 8.0),
}
"""What a constant may be on this kind of hardware; the fit stays inside."""


class Sample(Record):
    """One measured variant and the work its launches have."""

    name: str
    problem: str
    measured_ms: float
    works: list[Work]

    def modelled_ms(self, gpu: Gpu, constants: Constants) -> float:
        """The model's time of the whole call."""
        return sum(launch_ms(work, gpu, constants) for work in self.works)


def samples_of(table: dict[str, Any]) -> list[Sample]:
    """The measured variants of a table that `tools/fit_model.py` wrote."""
    return [
        Sample(
            name=row["name"],
            problem=row["problem"],
            measured_ms=row["ms"],
            works=[Work.model_validate(work) for work in row["works"]],
        )
        for row in table["variants"]
        if row["state"] == "ok"
    ]


def fit(samples: Sequence[Sample], gpu: Gpu, start: Constants | None = None) -> Constants:
    """Constants of least loss: each is tried larger and smaller in turn until none helps.

    Deterministic. The loss grows with the square of small relative errors and linearly with large
    ones; what all variants of a problem have in common counts a tenth, since it ranks nothing.
    """
    best = start or Constants()
    least = loss(samples, gpu, best)
    for step in STEPS:
        improved = True
        while improved:
            improved = False
            for name, (low, high) in BOUNDS.items():
                for factor in (step, 1 / step):
                    value = min(max(getattr(best, name) * factor, low), high)
                    trial = best.model_copy(update={name: round(value, 4)})
                    found = loss(samples, gpu, trial)
                    if found < least * (1 - 1e-4):
                        best, least, improved = trial, found, True
    return best


def loss(samples: Sequence[Sample], gpu: Gpu, constants: Constants) -> float:
    """How far modelled times are from measured ones: what `fit` makes least."""
    errors: dict[str, list[float]] = {}
    for sample in samples:
        error = math.log(sample.modelled_ms(gpu, constants) / sample.measured_ms)
        errors.setdefault(sample.problem, []).append(error)
    total = 0.0
    for found in errors.values():
        middle = sorted(found)[len(found) // 2]
        spread = sum(math.sqrt(1 + (10 * (e - middle)) ** 2) - 1 for e in found) / len(found)
        total += spread + math.sqrt(1 + middle**2) - 1
    return total / len(errors)


def leave_one_out(samples: Sequence[Sample], gpu: Gpu) -> dict[str, float]:
    """Problem -> rank correlation of its variants by a model fitted without that problem."""
    found = {}
    for problem in sorted({sample.problem for sample in samples}):
        constants = fit([s for s in samples if s.problem != problem], gpu)
        own = [s for s in samples if s.problem == problem]
        found[problem] = spearman(
            [s.modelled_ms(gpu, constants) for s in own], [s.measured_ms for s in own]
        )
    return found


def spearman(left: Sequence[float], right: Sequence[float]) -> float:
    """Spearman's rank correlation; equal values share their mean rank."""
    a, b = _ranks(left), _ranks(right)
    mean = (len(a) - 1) / 2
    product = sum((x - mean) * (y - mean) for x, y in zip(a, b, strict=True))
    squares = [sum((x - mean) ** 2 for x in ranks) for ranks in (a, b)]
    return product / math.sqrt(squares[0] * squares[1]) if all(squares) else 0.0


def _ranks(values: Iterable[float]) -> list[float]:
    values = list(values)
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    first = 0
    for last in range(1, len(values) + 1):
        if last == len(values) or values[order[last]] != values[order[first]]:
            for place in order[first:last]:
                ranks[place] = (first + last - 1) / 2
            first = last
    return ranks


def concordance(times: Sequence[tuple[float, float]], apart: float, noise: float) -> float | None:
    """Of pairs of (modelled, measured) times whose modelled ones differ by more than `apart` of the
    larger, and the measured ones by more than `noise`: the share in which both have one order. None
    without such pairs."""
    signs = [
        low[1] < high[1]
        for low, high in itertools.combinations(sorted(times), 2)
        if low[0] < high[0] * (1 - apart)
        and min(low[1], high[1]) < max(low[1], high[1]) * (1 - noise)
    ]
    return sum(signs) / len(signs) if signs else None

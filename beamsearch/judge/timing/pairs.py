"""A comparison of subjects that do not fit on a GPU all at once: two at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from beamsearch.errors import ProblemError
from beamsearch.records.job import Comparison, Subject


def compare_fitting(
    compare: Callable[[Sequence[Subject]], Comparison], subjects: Sequence[Subject]
) -> Comparison:
    """All together; where they and the oracle do not fit, each with the last one alone. Raises
    ProblemError where two do not fit, and one with another cause at once."""
    try:
        return compare(subjects)
    except ProblemError as error:
        if len(subjects) <= 2 or not isinstance(error.__cause__, torch.OutOfMemoryError):
            raise
    return joined(
        [compare([subject, subjects[-1]]) for subject in subjects[:-1]], subjects[-1].name
    )


def joined(pairs: Sequence[Comparison], mark: str) -> Comparison:
    """Comparisons that all hold `mark` as the first of them would have it: every other time, and
    every turn, by its ratio to the mark's own. Ratios to the mark stay as they were measured."""
    found = pairs[0]
    for pair in pairs[1:]:
        known, again = found.measurements.get(mark), pair.measurements.get(mark)
        factor = known.time_ms / again.time_ms if known and again else 1.0
        marks = list(zip(found.turns.get(mark, []), pair.turns.get(mark, []), strict=False))
        others = {n: m for n, m in pair.measurements.items() if n != mark or known is None}
        turns = {
            name: [time * first / now for time, (first, now) in zip(times, marks, strict=False)]
            for name, times in pair.turns.items()
            if name in others and marks
        }
        found = Comparison(
            measurements=found.measurements | {n: m.scaled(factor) for n, m in others.items()},
            failed=found.failed | {n: r for n, r in pair.failed.items() if n != mark},
            turns=found.turns | turns,
        )
    return found

"""Times that may be compared: those of one visit, or ratios to the anchor of their own."""

from __future__ import annotations

from collections.abc import Sequence

from beamsearch.records.candidate import Candidate
from beamsearch.records.trace import Trace


def comparable_times(trace: Trace, candidates: Sequence[Candidate]) -> dict[str, float]:
    """Each correct candidate's time over the input kernel's in the same visit: times of two visits
    meet only as ratios. Of one that was timed again to confirm a win, what came of that."""
    timed = {c.name: c.measurement for c in candidates if c.measurement and c.verdict.correct}
    inputs = {visit: trace.input_time_ms(visit) for visit in {own.visit for own in timed.values()}}
    again = {c.name: c.confirmed_ratio for c in candidates if c.confirmed_ratio is not None}
    return {name: own.time_ms / inputs[own.visit] for name, own in timed.items()} | again

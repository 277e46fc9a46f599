"""Times that may be compared: those of one visit, or ratios to the anchor of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from beamsearch.records.candidate import Candidate
from beamsearch.records.job import Comparison
from beamsearch.records.measurement import Measurement
from beamsearch.records.trace import Trace, read_record


def comparable_times(trace: Trace, candidates: Sequence[Candidate]) -> dict[str, float]:
    """Each correct candidate's time over the input kernel's in the same visit: times of two visits
    meet only as ratios. Of one that was timed again to confirm a win, what came of that."""
    timed = {c.name: c.measurement for c in candidates if c.measurement and c.verdict.correct}
    inputs = {visit: trace.input_time_ms(visit) for visit in {own.visit for own in timed.values()}}
    again = {c.name: c.confirmed_ratio for c in candidates if c.confirmed_ratio is not None}
    return {name: own.time_ms / inputs[own.visit] for name, own in timed.items()} | again


class InTurns(NamedTuple):
    """A kernel timed again to confirm a win, taking turns with the best of the rounds before."""

    time: Measurement
    beside: str
    """The best of the rounds before."""
    its_time: Measurement
    """That one's, in the same turns."""


def in_turns(trace: Trace, by_name: Mapping[str, Candidate]) -> dict[str, InTurns]:
    """The measurement that each confirmed ratio comes from, where it was kept."""
    found = {}
    for round in {c.round for c in by_name.values() if c.confirmed_ratio is not None}:
        path = trace.round(round) / "confirmation.json"
        times = read_record(path, Comparison).measurements if path.is_file() else {}
        before = next((n for n in times if n in by_name and by_name[n].round < round), None)
        for name, time in times.items():
            own = by_name.get(name)
            if before and own is not None and own.round == round and own.confirmed_ratio:
                found[name] = InTurns(time, before, times[before])
    return found


def ranked_time(
    trace: Trace, everyone: Iterable[Candidate], candidate: Candidate
) -> Measurement | None:
    """The time that a kernel's ratios rest on: in turns where it was confirmed, else as judged."""
    turns = in_turns(trace, {c.name: c for c in everyone}).get(candidate.name)
    return candidate.measurement if turns is None else turns.time

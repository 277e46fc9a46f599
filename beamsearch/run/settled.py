"""What becomes of a round whose kernels are judged, also before its workers have reflected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from beamsearch.records.candidate import Candidate
from beamsearch.records.job import CompareJob, Comparison, Subject
from beamsearch.records.ratios import comparable_times
from beamsearch.records.round import RoundRecord
from beamsearch.records.trace import CANDIDATES, read_record, recorded
from beamsearch.run.prefetch import begin_profiles
from beamsearch.search import (
    MODELLED_NOISE,
    Plan,
    Standing,
    State,
    Strategy,
    families,
    is_win,
    settle,
)
from beamsearch.search.pairs import paired

if TYPE_CHECKING:
    from beamsearch.run.context import Shared
    from beamsearch.run.stop import StopToken


class Settled(NamedTuple):
    """A round's kernels, and what becomes of them."""

    candidates: list[Candidate]
    by_name: Mapping[str, Candidate]
    """Of every round so far."""
    times: Mapping[str, float]
    standing: Standing


def settled(
    shared: Shared,
    strategy: Strategy,
    done: list[RoundRecord],
    plan: Plan,
    interrupted: StopToken,
) -> Settled:
    """What became of the round after those, from its kernels on disk. A win is confirmed once."""
    number = len(done)
    candidates = [
        read_record(path, Candidate)
        for maker in (None, *(assignment.worker for assignment in plan.assignments))
        for path in sorted(
            shared.trace.worker(number, maker).glob(CANDIDATES),
            key=lambda path: path.stem,  # a repair after what it repairs
        )
    ]
    everyone = [c for record in done for c in record.candidates] + candidates
    by_name = {c.name: c for c in everyone}
    times = comparable_times(shared.trace, everyone)
    standing = settle(
        strategy,
        [by_name[name] for name in done[-1].beam],
        candidates,
        by_name[done[-1].running_best],
        times=times,
        k=shared.settings.beam,
        families=families(everyone, shared.source),
        confirm=lambda best, before: _confirm(shared, number, best, before, interrupted),
    )
    return Settled(candidates, by_name, times, standing)


def next_parents(shared: Shared, strategy: Strategy, number: int, now: Settled) -> list[Candidate]:
    """The kernels that the round of this number will be asked about, no worker being left out."""
    parents = strategy.parents(
        State(
            round=number,
            workers=shared.settings.workers,
            seed=shared.settings.seed or 0,
            candidates=list(now.by_name.values()),
            times=now.times,
            beam=now.standing.beam,
            best=now.standing.running_best.name,
            stalled=not now.standing.win,
        )
    )
    return [now.by_name[name] for name in dict.fromkeys(parents)]


def _confirm(
    shared: Shared, number: int, best: Candidate, before: Candidate, interrupted: StopToken
) -> bool:
    """Whether the round's best, which seems faster, is: measured again beside the other; of
    modelled times by more than the model's own error."""
    if not shared.executor.measures:
        assert best.measurement is not None and before.measurement is not None
        return is_win(best.measurement.time_ms, before.measurement.time_ms, MODELLED_NOISE)
    subjects = [Subject(name=c.name, source=shared.source(c)) for c in (best, before)]

    begin_profiles(shared, [best])  # a round's best always is profiled

    def compare() -> Comparison:
        comparison = shared.executor.run(CompareJob(subjects=subjects))
        interrupted.check()
        return comparison

    both = recorded(shared.trace.round(number) / "confirmation.json", Comparison, compare)
    one, other = (both.measurements.get(c.name) for c in (best, before))
    if one is None or other is None:
        return False
    turns, others = (both.turns.get(c.name, []) for c in (best, before))
    if turns and len(turns) == len(others):
        return paired(turns, others).verdict == "faster"
    return is_win(one.time_ms, other.time_ms)

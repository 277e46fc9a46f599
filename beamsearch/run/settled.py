"""What becomes of a round whose kernels are judged, also before its workers have reflected."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from beamsearch.records.candidate import Candidate
from beamsearch.records.job import CompareJob, Comparison, Subject
from beamsearch.records.ratios import comparable_times, ranked_time
from beamsearch.records.round import RoundRecord
from beamsearch.records.trace import CANDIDATES, read_record, recorded
from beamsearch.report.numbers import Progress, sign, tell
from beamsearch.run.beside import Beside
from beamsearch.run.confirmation import confirm
from beamsearch.run.prefetch import begin_profiles
from beamsearch.run.results import distance_to_floor, find_candidate
from beamsearch.run.winner import examine
from beamsearch.search.directions import Plan
from beamsearch.search.pairs import MODELLED_NOISE, Ratio, is_win, paired
from beamsearch.search.stopping import Limits
from beamsearch.search.strategies import Standing, State, Strategy, settle
from beamsearch.search.survivors import families

if TYPE_CHECKING:
    from beamsearch.run.context import Shared
    from beamsearch.run.stop import StopToken


class Settled(NamedTuple):
    """A round's kernels, and what becomes of them."""

    candidates: list[Candidate]
    by_name: Mapping[str, Candidate]
    """Of every round so far."""
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
    standing = settle(
        strategy,
        [by_name[name] for name in done[-1].beam],
        candidates,
        by_name[done[-1].running_best],
        times=comparable_times(shared.trace, everyone),
        k=shared.settings.beam,
        families=families(everyone, shared.source),
        confirm=lambda faster, before: _confirm(shared, number, faster, before, interrupted),
    )
    if shared.executor.measures:
        for name in standing.timed_again:
            by_name[name] = by_name[name].with_values(confirmed_ratio=standing.times[name])
    return Settled([by_name[c.name] for c in candidates], by_name, standing)


def next_parents(shared: Shared, strategy: Strategy, number: int, now: Settled) -> list[Candidate]:
    """The kernels that the round of this number will be asked about, no worker being left out."""
    parents = strategy.parents(
        State(
            round=number,
            workers=shared.settings.workers,
            seed=shared.settings.seed or 0,
            candidates=list(now.by_name.values()),
            times=now.standing.times,
            beam=now.standing.beam,
            best=now.standing.running_best.name,
            stalled=not now.standing.win,
        )
    )
    return [now.by_name[name] for name in dict.fromkeys(parents)]


def look_ahead(
    shared: Shared,
    strategy: Strategy,
    done: list[RoundRecord],
    now: Settled,
    limits: Limits,
    interrupted: StopToken,
    *,
    leaves: bool,
) -> None:
    """Profile the round's best and the parents of the next while the model is asked; after the last
    round, look closer at the winner. Where the run `leaves` the GPU, wait for all that a round's
    end does on one."""
    standing, best = now.standing, now.standing.running_best
    if standing.best is not None:
        begin_profiles(shared, [standing.best])
        if leaves:
            shared.profile(standing.best)
    time = ranked_time(shared.trace, now.by_name.values(), best)
    if len(done) >= limits.rounds or limits.is_near(distance_to_floor(time, shared.floor)):
        if shared.executor.measures:
            look_closer(shared, done, best, interrupted)
        return
    if shared.settings.llm.run is not None:
        return  # the parents are the recorded ones
    parents = next_parents(shared, strategy, len(done) + 1, now)
    begin_profiles(shared, parents)
    for candidate in parents if leaves else []:
        shared.profile(candidate)


def look_closer(
    shared: Shared, done: list[RoundRecord], best: Candidate, interrupted: StopToken
) -> None:
    """What the end of a run does with its winner, side by side: its closer look and its last timing
    are recorded by its name, and not done again."""
    first = shared.source(find_candidate(done, "r0-s0"))
    quick = shared.settings.quick
    timed = Beside(
        lambda: confirm(shared.trace, shared.executor, best, first, interrupted, quick=quick)
    )
    examine(shared.trace, shared.executor, best, interrupted)
    timed.result(interrupted)  # of one that fails the look too, or it would be begun once more


def told_early(shared: Shared, done: list[RoundRecord], now: Settled) -> str:
    """What came of the round after those, in a line, before its record says it."""
    standing, before = now.standing, done[-1].running_best
    best, times = standing.running_best, standing.times
    kind = "win" if shared.executor.measures else "modelled win"
    time = ranked_time(shared.trace, now.by_name.values(), best)
    multiple = distance_to_floor(time, shared.floor)
    told = tell(Progress(best.name, time, 1 / times[best.name], {}, multiple))
    if not standing.win:
        return f"round {len(done)} is judged, without a {kind}: the best is still {told}"
    again = f", and {sign(best.measurement)}{times[before] / times[best.name]:.2f}x over {before}"
    confirmed = ", timed again beside it" if shared.executor.measures else ""
    return f"round {len(done)} is judged, with a {kind}: best {told}{again}{confirmed}"


def _confirm(
    shared: Shared,
    number: int,
    faster: list[Candidate],
    before: Candidate,
    interrupted: StopToken,
) -> dict[str, Ratio]:
    """Times over that of the best before, of those of a round that seem faster: measured again, all
    in turn; of modelled times, of those that are so by more than the model's own error."""
    if not shared.executor.measures:
        times = comparable_times(shared.trace, [*faster, before])
        mark = times[before.name]
        sure = [c.name for c in faster if is_win(times[c.name], mark, MODELLED_NOISE)]
        return {name: Ratio.of(times[name] / mark) for name in sure}
    subjects = [Subject(name=c.name, source=shared.source(c)) for c in (*faster, before)]

    begin_profiles(shared, faster[:1])  # a round's best always is profiled

    def compare() -> Comparison:
        job = CompareJob(round=number, subjects=subjects, own_python="fastest")
        comparison = shared.executor.run(job)
        interrupted.check()
        return comparison

    path = shared.trace.round(number) / "confirmation.json"
    turns = recorded(path, Comparison, compare).turns
    mark_turns = turns.get(before.name, [])
    return {
        c.name: paired(turns[c.name], mark_turns)
        for c in faster
        if mark_turns and len(turns.get(c.name, [])) == len(mark_turns)
    }

"""Which lane a job goes to, by what each has to do and by where its kernels are known."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from beamsearch.executor.client import LaneDied
from beamsearch.records.job import (
    CompareJob,
    Comparison,
    CompileJob,
    FloorJob,
    Job,
    JudgeJob,
    Judgement,
    ProfileJob,
    Subject,
    Sweep,
    SweepJob,
)
from beamsearch.records.verdict import Outcome, Stage, Verdict

AUTOTUNED = "autotune"
"""Stands in the source of a kernel that chooses its configuration where it is first called."""
BASELINES_WORK = 8.0
"""A comparison with the reference as PyTorch compiles it, in judgements: it may take minutes."""
COMPILE_WORK = THOROUGH_WORK = 4.0
SWEEP_WORK = FLOOR_WORK = 2.0
PROFILE_WORK = 3.0
"""It holds a lane three times as long as a judgement."""
AHEAD = 3.0
"""The most that a lane may have to do to be given a job more: enough that it does not run dry while
the CPU prepares the next. What waits until then goes to the lane that is free first, in the order
in which rounds need it."""
_ORDER: dict[type[Job[Any]], int] = {JudgeJob: 1, SweepJob: 2, ProfileJob: 3}
"""Of what one round waits for: comparisons and all else first."""
MOVED_SHARED = 1.0
"""How much more the lane where a kernel is known must have to do than another, where both know it:
as much as one judgement."""
MOVED_JUDGEMENT = 2.0
"""How much more the lane that has a kernel compiled must have to do than another, for the kernel to
be compiled there anew: that takes a second or two, and a judgement as long."""
MOVED_JOB = 4.0
"""The same of other jobs, which mean more where the kernel was judged: an autotuned one has its
configuration there."""


@dataclass(frozen=True)
class Load:
    """What one lane has to do."""

    work: float = 0.0
    """Of the jobs that it has, in judgements."""
    promised: int = 0
    """Kernels that it was told to prepare, and has no job for yet."""
    is_closed: bool = False
    """Whether it takes no jobs: it is gone, or kept for one that runs alone."""


def subjects_of(job: Job[Any]) -> Sequence[Subject]:
    """What a job is about."""
    if isinstance(job, JudgeJob | ProfileJob):
        return [job.subject]
    return job.subjects if isinstance(job, CompareJob | SweepJob) else []


def work_of(job: Job[Any]) -> float:
    """What a job is about as much as, in judgements."""
    if isinstance(job, CompileJob):
        return COMPILE_WORK
    if isinstance(job, SweepJob):
        return SWEEP_WORK
    if isinstance(job, FloorJob):
        return FLOOR_WORK
    if isinstance(job, ProfileJob):
        return PROFILE_WORK
    if isinstance(job, JudgeJob) and job.thorough:
        return THOROUGH_WORK
    subjects = subjects_of(job)
    return BASELINES_WORK if _has_reference(subjects) else float(len(subjects))


def next_job(
    waiting: Sequence[Job[Any]],
    loads: Sequence[Load],
    homes: Mapping[str | None, int],
    *,
    share: bool = False,
) -> tuple[int, int] | None:
    """Which of the jobs that wait, by its place, begins now on which lane; none where none does.
    `share` as in `lane_for`.

    Earlier rounds first; of a round, comparisons, judgements, sweeps, profiles. A job that waits
    for lanes to have less to do keeps them from all behind it.
    """
    loads = list(loads)
    order = sorted(
        range(len(waiting)),
        key=lambda place: (waiting[place].round, _ORDER.get(type(waiting[place]), 0), place),
    )
    for place in order:
        job = waiting[place]
        if (number := lane_for(job, loads, homes, share=share)) is not None:
            return place, number
        home = _home_of(job, loads, homes, share)
        for number in _lanes_of(job, loads, homes, share) if home is None else [home]:
            loads[number] = replace(loads[number], is_closed=True)
    return None


def lane_for(
    job: Job[Any],
    loads: Sequence[Load],
    homes: Mapping[str | None, int],
    *,
    later: bool = False,
    share: bool = False,
) -> int | None:
    """The lane that a job goes to; none where none takes it now. `homes`: source of a kernel ->
    the lane that knows it. `later`: however much it has to do. `share`: whether lanes know of each
    other's kernels.

    The reference is always timed on the first that is there, where what it compiles to is cached.
    A job about known kernels goes where most of them are known, unless that lane has much more to
    do than another; any other job goes where the least is to do. An autotuned kernel is profiled
    where it was tuned, unless the others know what came of it.
    """
    lanes = _lanes_of(job, loads, homes, share)
    subjects = subjects_of(job)
    if _has_reference(subjects):
        return next(iter(lanes), None)
    free = [number for number in lanes if later or loads[number].work <= AHEAD]
    if not free:
        return None
    home = _home_of(job, loads, homes, share)
    if home is None:
        return min(free, key=lambda number: (loads[number].work + loads[number].promised, number))
    idlest = min(free, key=lambda number: (loads[number].work, number))
    if share:
        moves = MOVED_SHARED
    elif isinstance(job, JudgeJob) and not job.thorough:
        moves = MOVED_JUDGEMENT
    else:
        moves = PROFILE_WORK if isinstance(job, ProfileJob) else MOVED_JOB
    if loads[home].work - loads[idlest].work >= moves:
        return idlest
    return home if home in free else None


def _lanes_of(
    job: Job[Any], loads: Sequence[Load], homes: Mapping[str | None, int], share: bool
) -> Sequence[int]:
    """Lanes that a job may go to."""
    lanes = [number for number, load in enumerate(loads) if not load.is_closed]
    if not share and isinstance(job, ProfileJob) and AUTOTUNED in (job.subject.source or ""):
        home = homes.get(job.subject.source)
        return [home] if home in lanes else lanes
    return lanes


def _home_of(
    job: Job[Any], loads: Sequence[Load], homes: Mapping[str | None, int], share: bool
) -> int | None:
    """The open lane that knows most of a job's kernels; none where none is known."""
    lanes = _lanes_of(job, loads, homes, share)
    known = [homes[s.source] for s in subjects_of(job) if homes.get(s.source) in lanes]
    return min(known, key=lambda n: (-known.count(n), loads[n].work, n), default=None)


def lane_alone(loads: Sequence[Load], died: Collection[int]) -> int | None:
    """The lane on which a job runs alone that was on lanes that died: another one, where there is
    one."""
    free = [number for number, load in enumerate(loads) if not load.is_closed]
    return min(free, key=lambda n: (n in died, loads[n].work, n), default=None)


def lane_to_prepare(
    subject: Subject,
    loads: Sequence[Load],
    homes: Mapping[str | None, int],
    *,
    share: bool = False,
) -> int | None:
    """The lane that will get the job about what is to be prepared."""
    of_kernel = subject.kind == "kernel"
    job = JudgeJob(subject=subject) if of_kernel else CompareJob(subjects=[subject])
    return lane_for(job, loads, homes, later=True, share=share)


def verdict_on(job: Job[Any], deaths: Sequence[LaneDied]) -> Any:
    """The answer to a job of which lanes died, the last time with nothing else on them. Raises the
    last death where a job of that kind can have no such answer."""
    last = deaths[-1]
    reason = (
        f"the process that judged it died each of {len(deaths)} times, at last with nothing else "
        f"in it: {last}"
    )
    if isinstance(job, JudgeJob):
        outcome = Outcome.TIMEOUT if last.hung else Outcome.CRASHED
        return Judgement(verdict=Verdict(outcome=outcome, stage=Stage.SMOKE, reason=reason))
    failed = {subject.name: reason for subject in subjects_of(job)}
    if isinstance(job, CompareJob):
        return Comparison(measurements={}, failed=failed)
    if isinstance(job, SweepJob):
        return Sweep(times_ms={}, failed=failed)
    raise last


def _has_reference(subjects: Sequence[Subject]) -> bool:
    return any(subject.kind != "kernel" for subject in subjects)

"""Which lane a job goes to, by what each has to do and by where its kernels are known."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
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
COMPILE_WORK = 4.0
SWEEP_WORK = FLOOR_WORK = 2.0
PROFILE_WORK = 3.0
"""It holds a lane three times as long as a judgement."""
AHEAD_OF_PROFILE = 1.0
"""The most that a lane may have to do to be given a profile. Until then the profile waits: what
rounds wait for passes it, and the lane that is free first takes it."""
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
    subjects = subjects_of(job)
    return BASELINES_WORK if _has_reference(subjects) else float(len(subjects))


def lane_for(job: Job[Any], loads: Sequence[Load], homes: Mapping[str | None, int]) -> int | None:
    """The lane that a job goes to; none where none takes jobs now. `homes`: source of a kernel ->
    the lane that knows it.

    The reference is always timed on the first that is there, where what it compiles to is cached.
    A job about known kernels goes where most of them are known, unless that lane has much more to
    do than another; any other job goes where the least is to do. A profile waits for a lane with
    next to nothing to do, that of an autotuned kernel for the one where it was tuned.
    """
    free = [number for number, load in enumerate(loads) if not load.is_closed]
    if isinstance(job, ProfileJob):
        stays = AUTOTUNED in job.subject.source and homes.get(job.subject.source) in free
        lanes = [homes[job.subject.source]] if stays else free
        free = [number for number in lanes if loads[number].work <= AHEAD_OF_PROFILE]
    if not free:
        return None
    subjects = subjects_of(job)
    if _has_reference(subjects):
        return free[0]
    known = [homes[s.source] for s in subjects if homes.get(s.source) in free]
    if not known:
        return min(free, key=lambda number: (loads[number].work + loads[number].promised, number))
    home = min(known, key=lambda number: (-known.count(number), loads[number].work, number))
    idlest = min(free, key=lambda number: (loads[number].work, number))
    short = isinstance(job, JudgeJob) and not job.thorough
    moved = loads[home].work - loads[idlest].work >= (MOVED_JUDGEMENT if short else MOVED_JOB)
    return idlest if moved else home


def lane_alone(loads: Sequence[Load], died: Collection[int]) -> int | None:
    """The lane on which a job runs alone that was on lanes that died: another one, where there is
    one."""
    free = [number for number, load in enumerate(loads) if not load.is_closed]
    return min(free, key=lambda n: (n in died, loads[n].work, n), default=None)


def lane_to_prepare(
    subject: Subject, loads: Sequence[Load], homes: Mapping[str | None, int]
) -> int | None:
    """The lane that will get the job about what is to be prepared."""
    job = CompareJob if subject.kind != "kernel" else None
    if job is not None:
        return lane_for(job(subjects=[subject]), loads, homes)
    return lane_for(JudgeJob(subject=subject), loads, homes)


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

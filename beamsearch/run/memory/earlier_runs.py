"""What earlier runs learned, of other problems too, brought into a run's own folder."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from beamsearch.errors import UsageError
from beamsearch.proposer.playbook.playbook import move
from beamsearch.proposer.questions import Earlier
from beamsearch.records.packed import opened_run
from beamsearch.records.ratios import comparable_times
from beamsearch.records.record import Record
from beamsearch.records.trace import Trace, read_record, write_record
from beamsearch.records.verdict import Outcome
from beamsearch.run.memory.lessons import lessons, speedup
from beamsearch.settings import Settings

KEPT = 12
"""Lessons kept of one run, of as many candidates, those that moved the time most; and shown of all
runs together: at most 1,600 tokens, a tenth of a prompt, which cuts each of them."""
NUMBERS = re.compile(r"\br\d+-\w+(-\w+)*|\d+")
"""Names of candidates, and numbers."""

NOTHING_SHOWN = (
    *(Outcome.CORRECT, Outcome.UNPROVEN),
    *(Outcome.DUPLICATE, Outcome.NO_CODE, Outcome.SET_ASIDE),
)
"""Without a speedup these say nothing of what was tried: nobody judged it, nobody could, or nothing
compares."""


class EarlierLesson(Record):
    """A lesson that stood when its run was read."""

    text: str
    avoid: bool
    speedup: float | None
    """Of the candidate that taught it, over its parent."""


class EarlierRun(Record):
    """One run, as far as it can teach another."""

    problem: str
    dtype: str
    gpu: str
    """The device's name; where times were modelled, the target's."""
    measured: bool
    speedup: float
    """Its best kernel over its first."""
    lessons: list[EarlierLesson]
    moves: dict[str, list[float]]
    """What was done -> speedups over the parents; 0 for a kernel that failed."""


class Learned(Record):
    """`learned.json`."""

    runs: list[EarlierRun]


def learn(trace: Trace, settings: Settings) -> None:
    """Leave `learned.json`, once, where the settings name earlier runs; a replay takes the recorded
    run's. Raises UsageError where one cannot be read or taught nothing."""
    if trace.learned_file.is_file():
        return
    if settings.llm.run is not None:
        recorded = opened_run(settings.llm.run).learned_file
        if recorded.is_file():
            write_record(trace.learned_file, read_record(recorded, Learned))
        return
    if settings.learn_from:
        runs = [read_run(Path(folder)) for folder in settings.learn_from]
        write_record(trace.learned_file, Learned(runs=runs))


def read_run(folder: Path) -> EarlierRun:
    """What a run's folder teaches. Raises UsageError where it holds no run with a round."""
    trace = opened_run(folder)
    record, done = trace.run_record(), trace.completed_rounds()
    if len(done) < 2:
        raise UsageError(f"{folder} has no completed round to learn from; leave out --learn-from")
    candidates = [c for finished in done for c in finished.candidates]
    times = comparable_times(trace, candidates)
    by_name = {c.name: c for c in candidates}
    moves: dict[str, list[float]] = defaultdict(list)
    for candidate in candidates:
        if candidate.parent is None or candidate.tuned_from is not None:
            continue  # a tuned form's speedup is mostly that of the change it was tuned after
        gained = speedup(candidate, times)
        if gained is not None:
            moves[candidate.description].append(gained)
        elif candidate.verdict.outcome not in NOTHING_SHOWN:
            moves[candidate.description].append(0.0)

    found: dict[str, EarlierLesson] = {}
    for lesson in lessons(trace, len(done), candidates, times):
        if lesson.teacher and by_name[lesson.teacher].tuned_from is not None:
            continue
        gained = speedup(by_name[lesson.teacher], times) if lesson.teacher else None
        one = EarlierLesson(text=move(lesson.text), avoid=lesson.avoid, speedup=gained)
        found.setdefault(lesson.teacher or lesson.text, one)  # one of a candidate is enough
    kept: dict[str, EarlierLesson] = {}
    for one in sorted(found.values(), key=_weight):
        kept.setdefault(NUMBERS.sub("", one.text), one)  # and one of `strips of 4, 8, 16 rows`
    return EarlierRun(
        problem=record.problem,
        dtype=record.problem_dtype,
        gpu=record.environment.gpu or record.environment.target,
        measured=record.environment.gpu is not None,
        speedup=1 / times[done[-1].running_best],
        lessons=list(kept.values())[:KEPT],
        moves=dict(moves),
    )


def earlier(trace: Trace, problem: str, gpu: str) -> Earlier:
    """What of it this run's prompts and the playbook get: lessons of the same problem first, then
    of the same GPU, then those that moved the time most."""
    if not trace.learned_file.is_file():
        return Earlier()
    runs = read_record(trace.learned_file, Learned).runs
    ranked = sorted(
        ((run, lesson) for run in runs for lesson in run.lessons),
        key=lambda pair: (pair[0].problem != problem, pair[0].gpu != gpu, _weight(pair[1])),
    )
    moves: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        for done, gains in run.moves.items():
            moves[done] += gains
    return Earlier(
        lessons=[_told(run, lesson) for run, lesson in ranked[:KEPT]],
        moves={done: _mean(gains) for done, gains in moves.items()},
    )


def _weight(lesson: EarlierLesson) -> float:
    """Smaller for what moved the time more."""
    return -abs(math.log(lesson.speedup)) if lesson.speedup else 0.0


def _mean(gains: Sequence[float]) -> float:
    return sum(gains) / len(gains)


def _told(run: EarlierRun, lesson: EarlierLesson) -> str:
    times = f"{run.speedup:.3g} x its first kernel{'' if run.measured else ', modelled'}"
    avoid = "avoid: " if lesson.avoid else ""
    return f"{run.problem} in {run.dtype} on {run.gpu} ({times}): {avoid}{lesson.text}"

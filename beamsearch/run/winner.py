"""Which kernel a run ends with: the best that stands a closer look than hundreds can be given."""

from __future__ import annotations

from contextlib import suppress

from beamsearch.errors import BeamsearchError
from beamsearch.executor.executor import Executor
from beamsearch.records.candidate import Candidate
from beamsearch.records.job import JudgeJob, Subject
from beamsearch.records.ratios import comparable_times
from beamsearch.records.run import Confirmation
from beamsearch.records.trace import Trace, recorded
from beamsearch.records.verdict import Stage, Verdict
from beamsearch.run.beside import Beside
from beamsearch.run.confirmation import confirm
from beamsearch.run.results import find_candidate
from beamsearch.run.stop import StopToken


def confirmed_winner(
    trace: Trace, executor: Executor, first_source: str, stop: StopToken, *, quick: bool
) -> tuple[Candidate, Confirmation | None, list[str]]:
    """The winner, its time beside the baselines, and notes. The running best is timed while it is
    looked at; another winner afterwards. Raises Stopped, and BeamsearchError where it cannot be
    timed."""

    def timed(candidate: Candidate) -> Beside[Confirmation]:
        return Beside(lambda: confirm(trace, executor, candidate, first_source, stop, quick=quick))

    done = trace.completed_rounds()
    likely = find_candidate(done, done[-1].running_best)
    ahead = timed(likely) if executor.measures else None
    best, notes = choose_winner(trace, executor, stop)
    if ahead is None:
        return best, None, notes
    if best.name != likely.name:
        with suppress(BeamsearchError):  # the time of one that is no winner
            ahead.result(stop)
        ahead = timed(best)
    return best, ahead.result(stop), notes


def choose_winner(trace: Trace, executor: Executor, stop: StopToken) -> tuple[Candidate, list[str]]:
    """The running best, or the next best where it fails; and a note on each that failed.

    The closer look tries other layouts, and watches every access with compute-sanitizer
    where there is one. Each is recorded, and not taken again. Where all fail, the running best is
    what there is, with its note. Raises Stopped.
    """
    done = trace.completed_rounds()
    everyone = [candidate for record in done for candidate in record.candidates]
    times = comparable_times(trace, everyone)
    best = find_candidate(done, done[-1].running_best)
    others = [c for c in everyone if c.name in times and c.name != best.name]
    notes: list[str] = []
    for candidate in [best, *sorted(others, key=lambda c: times[c.name])]:
        verdict = examine(trace, executor, candidate, stop)
        if verdict.correct:
            longer = [c for c in verdict.checks if c.stage is Stage.PYTHON and not c.passed]
            return candidate, [*notes, *(f"{candidate.name}: {c.message}" for c in longer)]
        reason = f"fails a closer look and is not the winner: {verdict.reason}"
        notes.append(f"{candidate.name} {reason}")
    return best, notes


def examine(trace: Trace, executor: Executor, candidate: Candidate, stop: StopToken) -> Verdict:
    """The verdict of a closer look at a candidate. Raises Stopped."""

    def judged() -> Verdict:
        subject = Subject(name=candidate.name, source=trace.kernel_source(candidate))
        verdict = executor.run(JudgeJob(subject=subject, thorough=True, sanitize=True)).verdict
        stop.check()
        return verdict

    return recorded(trace.examination(candidate.name), Verdict, judged)

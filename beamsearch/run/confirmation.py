"""A run's winner beside the baselines: the numbers that the run reports."""

from __future__ import annotations

from beamsearch.errors import BeamsearchError
from beamsearch.executor.executor import Executor
from beamsearch.records.baselines import Baselines, baseline_subjects
from beamsearch.records.candidate import Candidate
from beamsearch.records.job import CompareJob, Subject
from beamsearch.records.measurement import Measurement
from beamsearch.records.run import WINNER, Confirmation
from beamsearch.records.trace import Trace, read_record, write_record
from beamsearch.run.stop import StopToken
from beamsearch.search.pairs import is_win


def confirm(
    trace: Trace,
    executor: Executor,
    best: Candidate,
    first_source: str,
    stop: StopToken,
    *,
    quick: bool,
) -> Confirmation:
    """The winner, the input kernel and the baselines in one visit, interleaved; timed once.

    Raises Stopped, and BeamsearchError where one of the two kernels cannot be timed.
    """
    path = trace.confirmation_file
    if path.is_file() and read_record(path, Confirmation).name == best.name:
        return read_record(path, Confirmation)
    subjects = [
        Subject(name=WINNER, source=trace.kernel_source(best)),
        Subject(name="input", source=first_source),
        *baseline_subjects(quick=quick),
    ]
    comparison = executor.run(CompareJob(subjects=subjects, kernels=True))
    stop.check()
    measured = comparison.measurements
    for name in (WINNER, "input"):
        if name not in measured:
            raise BeamsearchError(
                f"the {name} kernel could not be timed again: {comparison.failed.get(name)}"
            )
    baselines = Baselines.of(comparison, anchor="input")
    record = Confirmation(
        name=best.name,
        winner=measured[WINNER],
        input=measured["input"],
        baselines=baselines,
        turns=comparison.turns,
    )
    write_record(path, record)
    return record


def slower_than_compiler(confirmation: Confirmation) -> list[str]:
    """A note where PyTorch's compiler makes the reference faster than the winner, outside the
    noise: then the run gained nothing."""
    names = {"compile": "torch.compile", "max_autotune": "torch.compile with max-autotune"}
    own, notes = confirmation.winner, []
    for field, name in names.items():
        other: Measurement | None = getattr(confirmation.baselines, field)
        if other is not None and is_win(other.time_ms, own.time_ms):
            notes.append(f"The best kernel ({own}) is slower than {name} ({other}): use that.")
    return notes

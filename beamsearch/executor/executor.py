"""What runs jobs, whatever is behind it."""

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from beamsearch.errors import BeamsearchError
from beamsearch.gpu.usage import Usage
from beamsearch.records.job import Comparison, Job, Subject
from beamsearch.records.measurement import Measurement
from beamsearch.records.record import R


def timed_again(subject: Subject, comparison: Comparison) -> Measurement:
    """The input kernel's time in another visit. Raises BeamsearchError where there is none."""
    if subject.name not in comparison.measurements:
        why = comparison.failed.get(subject.name)
        raise BeamsearchError(f"the input kernel could not be timed again: {why}")
    return comparison.measurements[subject.name]


class Executor(Protocol):
    """Runs jobs. A job either gives its record or raises a BeamsearchError; it never hangs."""

    gpu: str
    """Device name, or the target times are modelled for."""
    measures: bool
    """Whether times are measured here; otherwise they are modelled."""
    usage: Usage
    """Where the time goes."""

    def run(self, job: Job[R]) -> R:
        """The job's record."""
        ...

    def prepare(self, subjects: Sequence[Subject]) -> None:
        """Begin what the CPU has to do for what will be judged or timed. Returns at once."""
        ...

    def anchor(
        self, subject: Subject, keep: Callable[[Measurement], None], known: Collection[str]
    ) -> None:
        """Time the input kernel in each visit, but those that are `known`: `keep` gets its time
        before any other of that visit is given out."""
        ...

    def missing_isolation(self) -> dict[str, str]:
        """Parts of the isolation of candidates that the system refuses here, with the reasons."""
        ...

    def close(self) -> None:
        """End every process this executor started."""

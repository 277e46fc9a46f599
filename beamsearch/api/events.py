"""What a run says of itself as it goes, each thing as one event."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from beamsearch.errors import Stopped
from beamsearch.records.candidate import Candidate
from beamsearch.records.round import RoundRecord
from beamsearch.records.run import RunRecord


@dataclass(frozen=True)
class RunStarted:
    """The run is set up; its folder exists."""

    record: RunRecord
    folder: Path

    def __str__(self) -> str:
        return f"{self.record.problem} in {self.folder}, {self.record.who_thinks} thinks"


@dataclass(frozen=True)
class RoundStarted:
    """A round begins; one plan a worker."""

    round: int
    plans: list[str]

    def __str__(self) -> str:
        return f"round {self.round}: {'; '.join(self.plans)}"


@dataclass(frozen=True)
class WorkerTurned:
    """What a worker turns to."""

    worker: int
    doing: str

    def __str__(self) -> str:
        return f"worker {self.worker}: {self.doing}"


@dataclass(frozen=True)
class Judged:
    """A candidate has its verdict."""

    candidate: Candidate

    def __str__(self) -> str:
        own = self.candidate
        time = f", {own.measurement}" if own.measurement else ""
        why = f": {own.verdict.reason}" if own.verdict.reason else ""
        return f"{own.name} is {own.verdict.outcome}{time}{why}"


@dataclass(frozen=True)
class RoundEnded:
    """The round is on disk."""

    record: RoundRecord
    run: RunRecord

    def __str__(self) -> str:
        return f"round {self.record.round} ended, the best is {self.record.running_best}"


@dataclass(frozen=True)
class Note:
    """Something a person should know."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class RunEnded:
    """The run has reached its end."""

    record: RunRecord
    folder: Path

    def __str__(self) -> str:
        return f"{self.record.status}: {self.record.stop_reason}"


Event = RunStarted | RoundStarted | WorkerTurned | Judged | RoundEnded | Note | RunEnded
OnEvent = Callable[[Event], object]


@contextmanager
def passing_on(on_event: OnEvent | None) -> Iterator[Events]:
    """An observer for a run within, which stops the run where the listener raises, and raises that
    at the end."""
    events = Events(on_event)
    try:
        yield events
    except Stopped:
        if events.failed is None:
            raise
    if events.failed is not None:
        raise events.failed


class Events:
    """An observer that passes on what it sees, one event at a time, from whatever thread. Where the
    listener raises, the run is stopped, and `failed` holds what it raised."""

    def __init__(self, on_event: OnEvent | None) -> None:
        self._on_event = on_event
        self._one_at_a_time = threading.RLock()
        self.failed: Exception | None = None

    def _tell(self, event: Event) -> None:
        with self._one_at_a_time:
            if self._on_event is None or self.failed is not None:
                return
            try:
                self._on_event(event)
            except Exception as error:  # noqa: BLE001 - the listener's own; `optimize` raises it
                self.failed = error

    def _tell_or_stop(self, event: Event) -> None:
        """Raises Stopped where the listener has raised: nowhere but where a run can stop."""
        self._tell(event)
        if self.failed is not None:
            raise Stopped(f"on_event raised {type(self.failed).__name__}: {self.failed}")

    def run_started(self, record: RunRecord, folder: Path) -> None:
        self._tell(RunStarted(record, folder))

    def round_started(self, round: int, plans: list[str]) -> None:
        self._tell_or_stop(RoundStarted(round, plans))

    def worker(self, worker: int, doing: str) -> None:
        self._tell_or_stop(WorkerTurned(worker, doing))

    def candidate(self, candidate: Candidate) -> None:
        self._tell_or_stop(Judged(candidate))

    def round_ended(self, record: RoundRecord, run: RunRecord) -> None:
        self._tell_or_stop(RoundEnded(record, run))

    def note(self, text: str) -> None:
        self._tell_or_stop(Note(text))

    def run_ended(self, record: RunRecord, folder: Path) -> None:
        self._tell(RunEnded(record, folder))

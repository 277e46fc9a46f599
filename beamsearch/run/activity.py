"""Leaves beside a run what its process does right now, while it does it."""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from beamsearch.errors import UsageError
from beamsearch.records.activity import Activity
from beamsearch.records.trace import write_record

if TYPE_CHECKING:
    from beamsearch.records.candidate import Candidate
    from beamsearch.records.round import RoundRecord
    from beamsearch.records.run import RunRecord
    from beamsearch.run.observer import Observer
    from beamsearch.search.directions import Plan


class ActivityFile:
    """Watches a run for those in other processes, and passes on what it sees to `observer`."""

    def __init__(self, path: Path, seconds_before: float, observer: Observer) -> None:
        self._path = path
        self._observer = observer
        self._lock = threading.Lock()
        self._activity = Activity(started=time.time(), seconds_before=seconds_before)
        self._closed = False

    def _keep(self, activity: Activity) -> None:
        """To be called with the lock."""
        self._activity = activity
        if self._closed:
            return
        with suppress(UsageError):  # that nobody can watch is no reason for a run to end
            write_record(self._path, activity)

    def close(self) -> None:
        """Remove the file; nothing is written any more."""
        with self._lock:
            self._closed = True
            self._path.unlink(missing_ok=True)

    def run_started(self, record: RunRecord, folder: Path) -> None:
        with self._lock:
            self._keep(self._activity)
        self._observer.run_started(record, folder)

    def round_started(self, round: int, plan: Plan) -> None:
        with self._lock:
            self._keep(self._activity.round_started(time.time()))
        self._observer.round_started(round, plan)

    def worker(self, worker: int, doing: str, round: int | None = None) -> None:
        with self._lock:
            self._keep(self._activity.turned_to(round, worker, doing, time.time()))
        self._observer.worker(worker, doing, round)

    def candidate(self, candidate: Candidate) -> None:
        self._observer.candidate(candidate)

    def round_ended(self, record: RoundRecord, run: RunRecord) -> None:
        with self._lock:
            self._keep(self._activity.round_ended(record.round))
        self._observer.round_ended(record, run)

    def note(self, text: str) -> None:
        self._observer.note(text)

    def stopping(self, at_once: bool) -> None:
        if not at_once:  # else this is a signal's handler, and the lock may be taken
            with self._lock:
                self._keep(self._activity.with_values(stopping=True))
        self._observer.stopping(at_once)

    def run_stopped(self, record: RunRecord) -> None:
        self._observer.run_stopped(record)

    def run_ended(self, record: RunRecord, folder: Path) -> None:
        self._observer.run_ended(record, folder)

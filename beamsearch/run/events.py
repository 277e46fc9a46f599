"""What a run tells as it goes, each thing as one event."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from beamsearch.records.activity import Activity
from beamsearch.records.event import (
    Dealt,
    Event,
    Judged,
    Noted,
    RoundEnded,
    RoundStarted,
    RunEnded,
    RunStarted,
    RunStopped,
    Stopping,
    WorkerTurned,
)
from beamsearch.report.numbers import progress

if TYPE_CHECKING:
    from beamsearch.records.candidate import Candidate
    from beamsearch.records.round import RoundRecord
    from beamsearch.records.run import RunRecord
    from beamsearch.search.directions import Plan

OnEvent = Callable[[Event], object]


class Events:
    """An observer that passes on what it sees as events, one at a time, from whatever thread."""

    def __init__(self, on_event: OnEvent) -> None:
        self._on_event = on_event
        self._lock = threading.RLock()
        self._activity = Activity(started=time.time())

    def _tell(self, event: Event) -> None:
        with self._lock:
            self._on_event(event)

    def run_started(self, record: RunRecord, folder: Path) -> None:
        self._activity = self._activity.with_values(seconds_before=record.totals.seconds)
        self._tell(RunStarted(at=time.time(), folder=str(folder), run=record))

    def round_started(self, round: int, plan: Plan) -> None:
        self._activity = self._activity.round_started(time.time())
        dealt = [
            Dealt(worker=a.worker, parent=a.parent, direction=a.direction) for a in plan.assignments
        ]
        self._tell(RoundStarted(at=time.time(), round=round, dealt=dealt))

    def worker(self, worker: int, doing: str, round: int | None = None) -> None:
        self._tell(WorkerTurned(at=time.time(), round=round, worker=worker, doing=doing))

    def candidate(self, candidate: Candidate) -> None:
        self._tell(Judged(at=time.time(), candidate=candidate))

    def round_ended(self, record: RoundRecord, run: RunRecord) -> None:
        self._activity = self._activity.round_ended(record.round)
        now, best = time.time(), progress(run)
        rounds_left = run.settings.rounds - record.round
        over = {} if best.over_input is None else {"input": best.over_input}
        self._tell(
            RoundEnded(
                at=now,
                round=record,
                best=best.best,
                best_time=best.time,
                over=over | best.over,
                of_floor=best.of_floor,
                modelled=best.time is not None and best.time.source == "modelled",
                totals=run.totals,
                left_s=self._activity.left_s(now, rounds_left, run.settings.time_limit_s),
            )
        )

    def note(self, text: str) -> None:
        self._tell(Noted(at=time.time(), text=text))

    def stopping(self, at_once: bool) -> None:
        if not at_once:  # else the lock may be taken
            self._tell(Stopping(at=time.time()))

    def run_stopped(self, record: RunRecord) -> None:
        reason = record.stop_reason or "stopped"
        self._tell(RunStopped(at=time.time(), reason=reason, run=record))

    def run_ended(self, record: RunRecord, folder: Path) -> None:
        self._tell(RunEnded(at=time.time(), folder=str(folder), run=record))

    def close(self) -> None:
        """Nothing to put back."""

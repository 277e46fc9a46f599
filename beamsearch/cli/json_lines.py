"""A run as one JSON object a line, for programs."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING

from beamsearch.cli.numbers import progress
from beamsearch.records.activity import Activity
from beamsearch.records.event import (
    Dealt,
    Judged,
    Noted,
    RoundEnded,
    RoundStarted,
    RunEnded,
    RunStarted,
    RunStopped,
    Stopping,
    Told,
    WorkerTurned,
)

if TYPE_CHECKING:
    from beamsearch.records.candidate import Candidate
    from beamsearch.records.round import RoundRecord
    from beamsearch.records.run import RunRecord
    from beamsearch.search import Plan


class JsonLines:
    """Writes every event of a run as it happens, in ASCII."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._activity = Activity(started=time.time())

    def _tell(self, event: Told) -> None:
        line = json.dumps(event.model_dump(mode="json"))
        with self._lock:
            self._stream.write(line + "\n")
            self._stream.flush()

    def run_started(self, record: RunRecord, folder: Path) -> None:
        self._activity = self._activity.with_values(seconds_before=record.totals.seconds)
        self._tell(RunStarted(at=time.time(), folder=str(folder), run=record))

    def round_started(self, round: int, plan: Plan) -> None:
        self._activity = self._activity.round_started(time.time())
        dealt = [
            Dealt(worker=a.worker, parent=a.parent, direction=a.direction) for a in plan.assignments
        ]
        self._tell(RoundStarted(at=time.time(), round=round, dealt=dealt))

    def worker(self, worker: int, doing: str) -> None:
        self._tell(WorkerTurned(at=time.time(), worker=worker, doing=doing))

    def candidate(self, candidate: Candidate) -> None:
        self._tell(Judged(at=time.time(), candidate=candidate))

    def round_ended(self, record: RoundRecord, run: RunRecord) -> None:
        self._activity = self._activity.round_ended()
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

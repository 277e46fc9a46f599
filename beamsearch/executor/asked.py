"""What a lane was asked and did not answer yet, wherever the lane is."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

from beamsearch.executor.client import LaneFacts
from beamsearch.executor.messages import Answer
from beamsearch.records.usage import LaneUse

SILENT_S = 120.0
"""A lane says each second that it is there. One that is silent so long is stuck: swapping, or a
call that holds Python, takes less."""
JOB_S = 1800.0
"""A lane that has jobs and ends none in so long hangs: whatever a job does has deadlines, which
come to minutes; the rest is for a GPU that other processes hold."""


class Asked:
    """Hands answers to who asked, and says when a lane is to be given up. Thread-safe."""

    def __init__(self, silent_s: float, job_s: float) -> None:
        self.facts: Future[LaneFacts] = Future()
        self.use = LaneUse()
        """What the lane was used for, as it last said."""
        self._limits = silent_s, job_s
        self._lock = threading.Lock()
        self._waiting: dict[int, tuple[type[Any] | None, Future[Any]]] = {}
        self._number = 0
        self._heard = self._answered = time.monotonic()

    def add(self, kind: type[Any] | None) -> tuple[int, Future[Any]]:
        """The number of something new that is asked, and what its answer will be in."""
        asked: Future[Any] = Future()
        with self._lock:
            self._number += 1
            if not self._waiting:
                self._answered = time.monotonic()
            self._waiting[self._number] = kind, asked
            return self._number, asked

    def heard(self, said: Answer) -> None:
        """What a lane said, an answer or not."""
        self._heard, self.use = time.monotonic(), said.use
        if said.number is not None:
            self._hand_out(said.number, said)
            return
        with self._lock:
            if self.facts.done():
                return
            if said.facts is not None:
                self.facts.set_result(said.facts)
            elif said.error is not None:
                self.facts.set_exception(said.raised())

    def _hand_out(self, number: int, said: Answer) -> None:
        with self._lock:
            self._answered = time.monotonic()
            kind, asked = self._waiting.pop(number, (None, None))
        if asked is None:
            return
        if said.error is not None:
            asked.set_exception(said.raised())
        elif kind is None:
            asked.set_result(said.record)
        else:
            asked.set_result(kind.model_validate_json(json.dumps(said.record)))

    def reason_to_give_up(self) -> str | None:
        """Why the lane is taken for one that hangs; none where it is not."""
        silent_s, job_s = self._limits
        now = time.monotonic()
        with self._lock:
            is_busy = bool(self._waiting)
        if now - self._heard > silent_s:
            return f"it was silent for {silent_s:.0f} s"
        if is_busy and now - self._answered > job_s:
            return f"it ended no job in {job_s:.0f} s"
        return None

    def lost(self, error: Callable[[], Exception]) -> None:
        """The lane is gone: all that wait for it get such an error."""
        with self._lock:
            left = [asked for _, asked in self._waiting.values()]
            self._waiting.clear()
            if not self.facts.done():
                self.facts.set_exception(error())
        for asked in left:
            asked.set_exception(error())

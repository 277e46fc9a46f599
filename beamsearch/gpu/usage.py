"""Where a run's time goes: what the lane is busy with, and what it is idle for."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Literal, TypeVar, get_args

from beamsearch.records.usage import LaneUse, together

Work = Literal["judging", "timing", "profiling", "tuning", "comparing", "preparing"]
"""What holds the lane: `timing` within a judgement, `preparing` what is done once."""
Wait = Literal["another process", "compilation", "verification", "profiler", "model", "a job"]
"""What a lane that nobody holds waits for: a GPU that others use, the compiler, results checked on
CPU cores, Nsight Compute's start and its report, whoever thinks; one of several lanes, for a job
that the run has for it. What is none of these is Python's
own time: parsing, rewriting, prompts, the trace."""
WAITS: tuple[Wait, ...] = get_args(Wait)
"""Where several go on at once, the first counts: it will take the lane soonest."""
PYTHON = "python"
Result = TypeVar("Result")


class Usage:
    """An account of every moment since it was opened; thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._since = clock()
        self._holding: list[Work] = []
        self._waiting: Counter[Wait] = Counter()
        self._busy: Counter[str] = Counter()
        self._idle: Counter[str] = Counter()
        self._lanes: Callable[[], Mapping[str, LaneUse]] | None = None

    @contextmanager
    def holding(self, work: Work) -> Iterator[None]:
        """The lane is held for this; within another, for this part of it."""
        self._booked(lambda: self._holding.append(work))
        try:
            yield
        finally:
            self._booked(lambda: self._holding.remove(work))

    @contextmanager
    def waiting(self, wait: Wait) -> Iterator[None]:
        """Something goes on that the lane may have to wait for."""
        self._booked(lambda: self._waiting.update([wait]))
        try:
            yield
        finally:
            self._booked(lambda: self._waiting.subtract([wait]))

    def so_far(self) -> LaneUse:
        """How the lane was used up to now; where there are several, how they were."""
        if self._lanes is not None:
            return together(self._lanes())
        return self._booked(
            lambda: LaneUse(busy_s=_rounded(self._busy), idle_s=_rounded(self._idle))
        )

    def count_lanes(self, lanes: Callable[[], Mapping[str, LaneUse]]) -> None:
        """From now on the account is that of these lanes, each with a process and a name."""
        self._lanes = lanes

    def _booked(self, change: Callable[[], Result]) -> Result:
        """Book the time since the last change, and make the next one."""
        with self._lock:
            now = self._clock()
            seconds, self._since = now - self._since, now
            if self._holding:
                self._busy[self._holding[-1]] += seconds  # type: ignore[assignment]
            else:
                why = next((wait for wait in WAITS if self._waiting[wait]), PYTHON)
                self._idle[why] += seconds  # type: ignore[assignment]
            return change()


def _rounded(seconds: Counter[str]) -> dict[str, float]:
    return {what: round(s, 2) for what, s in seconds.most_common() if round(s, 2)}

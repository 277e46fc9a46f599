"""Stopping: one token that everything that takes long asks."""

from __future__ import annotations

import threading

from beamsearch.errors import Stopped


class StopToken:
    """Set once, by a signal or when time is up; what stops a run also stops its workers.

    Safe in several threads.
    """

    def __init__(self, run: StopToken | None = None) -> None:
        self._set = threading.Event()
        self._run = run
        """The run's own token, where this is its workers'."""

    def set(self) -> None:
        """Ask everybody who has this token to stop."""
        self._set.set()

    def is_set(self) -> bool:
        """Whether somebody asked."""
        return self._set.is_set() or (self._run is not None and self._run.is_set())

    def check(self) -> None:
        """Raise Stopped where somebody asked: called before a result is written."""
        if self.is_set():
            raise Stopped("stopping")

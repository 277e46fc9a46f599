"""A listener of a run: it hears each event, and what it raises stops the run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from beamsearch.errors import Stopped
from beamsearch.records.event import Event, RunEnded, RunStarted, RunStopped, Stopping
from beamsearch.run.events import Events, OnEvent

__all__ = ["Event", "OnEvent", "passing_on"]


@contextmanager
def passing_on(on_event: OnEvent | None) -> Iterator[Events]:
    """An observer for a run within, which stops the run where the listener raises, and raises that
    at the end."""
    listener = _Listener(on_event)
    try:
        yield Events(listener.hear)
    except Stopped:
        if listener.failed is None:
            raise
    if listener.failed is not None:
        raise listener.failed


class _Listener:
    """Hears nothing more once it raised; `failed` holds what it raised."""

    def __init__(self, on_event: OnEvent | None) -> None:
        self._on_event = on_event
        self.failed: Exception | None = None

    def hear(self, event: Event) -> None:
        """Raises Stopped where the listener has raised: nowhere but where a run can stop."""
        if self._on_event is not None and self.failed is None:
            try:
                self._on_event(event)
            except Exception as error:  # noqa: BLE001 - the listener's own; `optimize` raises it
                self.failed = error
        can_stop = not isinstance(event, RunStarted | Stopping | RunStopped | RunEnded)
        if self.failed is not None and can_stop:
            raise Stopped(f"on_event raised {type(self.failed).__name__}: {self.failed}")

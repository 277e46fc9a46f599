"""Who is next where many kernels are begun at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Turns:
    """Places that kernels take in turn: first those that somebody waits for, in the order in which
    they were wanted, then the others as they came. Thread-safe."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._changed = threading.Condition()
        self._waiting: list[str] = []
        self._wanted: dict[str, int] = {}

    def want(self, key: str) -> None:
        """Somebody waits for this kernel from now on."""
        with self._changed:
            self._wanted.setdefault(key, len(self._wanted))
            self._changed.notify_all()

    @contextmanager
    def taken(self, key: str) -> Iterator[Callable[[], None]]:
        """A place, once it is this kernel's turn; what is yielded gives it up before the end."""
        has_place = True

        def leave() -> None:
            nonlocal has_place
            with self._changed:
                self._free += has_place
                has_place = False
                self._changed.notify_all()

        with self._changed:
            self._waiting.append(key)
            self._changed.wait_for(lambda: self._free and self._next() == key)
            self._waiting.remove(key)
            self._free -= 1
            self._changed.notify_all()  # there may be another place
        try:
            yield leave
        finally:
            leave()

    def _next(self) -> str:
        last = len(self._wanted)
        return min(self._waiting, key=lambda key: self._wanted.get(key, last))

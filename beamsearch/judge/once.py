"""What several threads need and one works out."""

import threading
from collections.abc import Callable, Hashable
from typing import TypeVar

T = TypeVar("T")


class OncePerKey:
    """Runs a function once for a key, whichever thread comes first; the others get its result."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[Hashable, threading.Lock] = {}
        self._results: dict[Hashable, object] = {}

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The result for a key. What `make` raises is raised, and the next caller tries again."""
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            if key not in self._results:
                self._results[key] = make()
            return self._results[key]  # type: ignore[return-value]

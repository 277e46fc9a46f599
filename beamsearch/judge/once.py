"""What several threads, or several processes, need and one works out."""

import pickle
import threading
from collections.abc import Callable, Hashable
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from beamsearch.records.file_lock import in_turn

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


class OncePerMachine:
    """The same over processes of this machine that know a folder, each with threads. Whoever works
    it out and is killed leaves it to the next. The folder is for their user alone to enter: what
    lies in it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, key: str, make: Callable[[], T], waits: Callable[[], None] = lambda: None) -> T:
        """As `OncePerKey.get`; a key is a file's name. `waits` is called where another one works it
        out, before that is waited for."""
        kept = self._folder / key
        with in_turn(self._folder / f"{key}.lock", waits):
            if kept.exists():
                result: T = pickle.loads(kept.read_bytes())
                return result
            result = make()
            with suppress(OSError):  # a full disk: then the others work it out too
                draft = self._folder / f"{key}.draft"
                draft.write_bytes(pickle.dumps(result))
                draft.replace(kept)
            return result

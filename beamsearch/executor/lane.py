"""A lane: one GPU, one job at a time, across threads and processes."""

from __future__ import annotations

import fcntl
import os
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SHARED = Path("/tmp")


class Lane:
    """The lock that every use of a GPU takes, keyed by the GPU's UUID."""

    def __init__(self, uuid: str, folder: Path | None = None) -> None:
        self._thread_lock = threading.Lock()
        # Not TMPDIR, which two processes on one GPU may have set to different folders.
        common = SHARED if SHARED.is_dir() else Path(tempfile.gettempdir())
        self._path = (folder or common) / f"beamsearch-{uuid}.lock"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the GPU; whoever waits gets it when this ends, also by a kill."""
        with self._thread_lock:
            descriptor = self._open()
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                yield
            finally:
                os.close(descriptor)

    def _open(self) -> int:
        """The lock file, which may belong to another user: reading is enough to lock it."""
        try:
            return os.open(self._path, os.O_RDONLY)
        except FileNotFoundError:
            return os.open(self._path, os.O_RDONLY | os.O_CREAT, 0o644)

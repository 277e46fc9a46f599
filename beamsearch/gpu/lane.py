"""A lane: one GPU, one job at a time, across threads and processes."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from beamsearch.gpu.usage import Usage, Work


class Lane:
    """The lock that every use of a GPU takes, keyed by the GPU's UUID.

    By hand: `filelock` opens for writing, which the lock file of another user does not allow.
    """

    def __init__(
        self, uuid: str, folder: Path | None = None, *, usage: Usage | None = None
    ) -> None:
        self._usage = usage or Usage()
        self._thread_lock = threading.Lock()
        # Not TMPDIR, which two processes on one GPU may have set to different folders.
        self._path = (folder or Path("/tmp")) / f"beamsearch-{uuid}.lock"

    @contextmanager
    def held(
        self,
        timeout_s: float | None = None,
        *,
        work: Work = "preparing",
        shared: bool = False,
    ) -> Iterator[bool]:
        """Hold the GPU; whoever waits gets it when this ends, also by a kill. False, and not held,
        where it was not free in time. `work`: what for, in the account of its time. `shared`: with
        other processes that hold it so, where neither the time nor the room is looked at."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        if not self._thread_lock.acquire(timeout=-1 if timeout_s is None else timeout_s):
            yield False
            return
        try:
            flags = os.O_RDONLY if self._path.exists() else os.O_RDONLY | os.O_CREAT
            descriptor = os.open(self._path, flags, 0o644)
            try:
                with self._usage.waiting("another process"):
                    locked = _locked(
                        descriptor, deadline, fcntl.LOCK_SH if shared else fcntl.LOCK_EX
                    )
                if not locked:
                    yield False
                    return
                with self._usage.holding(work):
                    yield True
            finally:
                os.close(descriptor)
        finally:
            self._thread_lock.release()


def _locked(descriptor: int, deadline: float | None, how: int) -> bool:
    """Lock an open file; whether that came about by the deadline."""
    if deadline is None:
        fcntl.flock(descriptor, how)
        return True
    while True:
        try:
            fcntl.flock(descriptor, how | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)

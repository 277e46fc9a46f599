"""A run's hold on its folder and on the process: one process a folder, a clean stop on a signal."""

from __future__ import annotations

import fcntl
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from beamsearch.errors import UsageError
from beamsearch.run.stop import StopToken


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """One process a run folder. Raises UsageError where the folder is taken or unwritable."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        stream = (folder / ".lock").open("w")
    except OSError as error:
        raise UsageError(f"cannot write in {folder}: {error}; give another --output") from error
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UsageError(f"another process is running in {folder}") from error
        yield


def is_locked(folder: Path) -> bool:
    """Whether a process works on the run in a folder."""
    try:
        stream = (folder / ".lock").open()
    except OSError:
        return False  # nobody ever did, or it is not for us
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False


@contextmanager
def in_turn(file: Path) -> Iterator[None]:
    """Waits until no other process is in a block of the same file."""
    with file.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


@contextmanager
def stop_on_signal(stop: StopToken) -> Iterator[None]:
    """SIGINT and SIGTERM set `stop`; a second one ends the process as it would have."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: object) -> None:
        if stop.is_set():
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        stop.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

"""A run's hold on its folder and on the process: one process a folder, a clean stop on a signal."""

from __future__ import annotations

import fcntl
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from beamsearch.errors import UsageError
from beamsearch.run.stop import StopToken

LOCK = ".lock"
PEEK_S = 0.5
"""How long the lock is tried for: somebody who watches may look at it for a moment."""


def is_worked_on(folder: Path) -> bool:
    """Whether a process has the lock of a run's folder. It is not kept from anybody."""
    try:
        with (folder / LOCK).open() as stream:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


@contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """One process a run folder. Raises UsageError where the folder is taken or unwritable."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        stream = (folder / LOCK).open("w")
    except OSError as error:
        raise UsageError(f"cannot write in {folder}: {error}; give another --output") from error
    with stream:
        give_up = time.monotonic() + PEEK_S
        while True:
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError as error:
                if time.monotonic() > give_up:
                    raise UsageError(f"another process is running in {folder}") from error
                time.sleep(0.02)
        yield


@contextmanager
def stop_on_signal(
    stop: StopToken, stopping: Callable[[bool], None] = lambda at_once: None
) -> Iterator[None]:
    """SIGINT and SIGTERM set `stop`; a second one ends the process as it would have.

    `stopping` is called with False after the first, in a thread of its own, and with True before
    the process ends, in the signal's handler.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    asked, over = threading.Event(), threading.Event()

    def tell() -> None:
        asked.wait()
        if not over.is_set():
            stopping(False)

    def handle(number: int, frame: object) -> None:
        if asked.is_set():
            stopping(True)
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        stop.set()
        asked.set()

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        over.set()
        asked.set()
        teller.join()

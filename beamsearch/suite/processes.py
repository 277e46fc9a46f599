"""Processes for problems of others: forked from one that has imported what they need, and that
never hears of Ctrl-C, which is for who asked."""

from __future__ import annotations

import multiprocessing
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.context import ForkServerContext, ForkServerProcess
from multiprocessing.forkserver import ensure_running
from types import ModuleType


def forking(*modules: str) -> ForkServerContext:
    """What starts such processes. `modules` are imported ahead where it is the first to be made in
    this process; a later one is the first again."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(modules))
    with _ignoring_interrupts():
        ensure_running()
    return context


_ONE_AT_A_TIME = threading.Lock()


def start(process: ForkServerProcess) -> None:
    """Start a process that does not execute the caller's script again, which may have no
    `if __name__ == "__main__"`."""
    with _ONE_AT_A_TIME:
        script = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            process.start()
        finally:
            sys.modules["__main__"] = script


@contextmanager
def _ignoring_interrupts() -> Iterator[None]:
    """What is started within never hears of Ctrl-C, which is for who asked."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)

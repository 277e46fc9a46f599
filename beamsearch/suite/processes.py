"""Processes for problems of others: forked from one that has imported what they need, and that
never hears of Ctrl-C, which is for who asked."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import wait
from multiprocessing.context import ForkServerContext, ForkServerProcess
from multiprocessing.forkserver import ensure_running
from types import ModuleType

TRACING = ("torch", "torch._dynamo", "torch.fx.experimental.symbolic_shapes")
"""What any trace of a problem imports in the end, in one to three seconds; each process would."""


def forking(*modules: str, tracing: bool = True) -> ForkServerContext:
    """What starts such processes. `modules`, and those of `tracing`, are imported ahead where it is
    the first to be made in this process; a later one is the first again."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*modules, *TRACING] if tracing else [*modules, "torch"])
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


def join(process: ForkServerProcess, timeout_s: float | None = None) -> None:
    """Wait for the end of a process. Its exit code is read once, from a pipe: whoever starts
    another at the same moment reads it too, and one of the two would find nothing there."""
    if wait([process.sentinel], timeout_s):
        with _ONE_AT_A_TIME:
            process.join()


def end(process: ForkServerProcess) -> None:
    """End a process for certain."""
    process.kill()
    join(process)


def end_with_parent() -> None:
    """In such a process: end once whoever asked for it is gone, by a kill too. Returns at once."""
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


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

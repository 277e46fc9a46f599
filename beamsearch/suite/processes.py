"""Processes for problems of others: forked from one that has imported what they need, and that
never hears of Ctrl-C, which is for who asked."""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.context import ForkServerContext
from multiprocessing.forkserver import ensure_running


def forking(*modules: str) -> ForkServerContext:
    """What starts such processes. `modules` are imported ahead where it is the first to be made in
    this process; a later one is the first again."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(modules))
    with _ignoring_interrupts():
        ensure_running()
    return context


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

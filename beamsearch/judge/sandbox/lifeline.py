"""A process that ends with whoever started it, by a pipe or socket between the two: also where that
one was killed, and where its own main thread is inside a kernel that never ends."""

from __future__ import annotations

import os
import select
import signal
import threading
import time


def end_with(descriptor: int, grace_s: float = 0.0) -> None:
    """End this process once the other end is closed, after `grace_s` in which it may end by itself.
    Returns at once."""
    threading.Thread(target=_watch, args=(descriptor, grace_s), daemon=True).start()


def _watch(descriptor: int, grace_s: float) -> None:
    poll = select.poll()
    poll.register(descriptor, select.POLLRDHUP)
    ((_, event),) = poll.poll()
    if event & (select.POLLHUP | select.POLLRDHUP):
        time.sleep(grace_s)
        os.kill(os.getpid(), signal.SIGKILL)

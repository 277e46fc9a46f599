"""A file that processes of a machine take in turn."""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def in_turn(file: Path, waits: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Waits until nobody else is in a block of the same file, process or thread; `waits` is called
    before that, where somebody is. Who is killed in it is out of it. Raises OSError where the file
    cannot be written."""
    with file.open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waits()
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield

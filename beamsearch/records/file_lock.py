"""A file that processes of a machine take in turn."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def in_turn(file: Path) -> Iterator[None]:
    """Waits until nobody else is in a block of the same file, process or thread. Who is killed in
    it is out of it. Raises OSError where the file cannot be written."""
    with file.open("w") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield

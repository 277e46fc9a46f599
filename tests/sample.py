"""What of the slow tests one run of the tests takes: another part with each commit."""

import functools
import hashlib
import subprocess
from collections.abc import Iterable
from pathlib import Path


@functools.cache
def git(*words: str) -> str:
    """What git says of this checkout; nothing where it is none."""
    command = ["git", "-C", str(Path(__file__).parent), *words]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20).stdout.strip()
    except OSError:
        return ""


def _place(name: str) -> int:
    """A number that this name has with this commit alone."""
    digest = hashlib.sha256(f"{git('rev-parse', 'HEAD')} {name}".encode()).digest()
    return int.from_bytes(digest[:8])


def is_drawn(name: str, among: int) -> bool:
    """Whether what has this name is the one of so many whose turn it is."""
    return _place(name) % among == 0


def drawn(names: Iterable[str], count: int) -> list[str]:
    """So many of these names."""
    return sorted(names, key=_place)[:count]


def is_turn(turn: int, of: int) -> bool:
    """Whether it is this one's turn: of so many, each commit has the next."""
    return int(git("rev-list", "--count", "HEAD") or 0) % of == turn

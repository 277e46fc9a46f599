"""What of the slow tests one run of the tests takes: another part with each commit."""

import functools
import hashlib
import subprocess
from pathlib import Path


@functools.cache
def commit() -> str:
    """This checkout's; empty where there is none."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20).stdout.strip()
    except OSError:
        return ""


def is_drawn(name: str, among: int) -> bool:
    """Whether what has this name is the one of so many whose turn it is."""
    drawn = hashlib.sha256(f"{commit()} {name}".encode()).digest()
    return int.from_bytes(drawn[:8]) % among == 0


def is_turn(turn: int, of: int) -> bool:
    """Whether it is this one's turn: of so many, each commit has exactly one."""
    return int.from_bytes(hashlib.sha256(commit().encode()).digest()[:8]) % of == turn

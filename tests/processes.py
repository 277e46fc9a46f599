"""Processes as /proc shows them."""

from __future__ import annotations

from pathlib import Path


def children(pid: int) -> list[int]:
    """Processes that one began, which still are there."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def family(pid: int) -> list[int]:
    """A process and all below it, without those that end meanwhile."""
    found = [pid]
    for one in found:
        try:
            found += children(one)
        except OSError:
            continue
    return found

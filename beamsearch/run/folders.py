"""The folders of runs: which there are, how each stands, and what of it can be made again."""

from __future__ import annotations

import hashlib
import os
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from beamsearch.errors import UsageError
from beamsearch.judge.sandbox.clean_environment import remove
from beamsearch.records.run import RunRecord
from beamsearch.records.trace import Trace
from beamsearch.run.lock import folder_lock, is_worked_on

COMPILED = ("__pycache__", "*.ncu-rep", "*.cubin", "*.ptx", "*.ttir", "*.ttgir", "*.llir")
"""What profilers and compilers leave, by name; nothing of it stands in a record."""
LINKED = (".json", ".jsonl", ".txt")
"""Suffixes of files whose copies may become one file: people edit kernels, and one that is linked
would change a record."""
BLOCK = 512
"""Bytes of a block as `stat` counts them."""


class State(StrEnum):
    """How a run stands."""

    RUNNING = "running"
    """A process works on it now."""
    WAITING = "waiting"
    """For answers to a batch, a GPU elsewhere, or a larger limit."""
    STOPPED = "stopped"
    """By a person, an error or a kill: it can go on."""
    FINISHED = "finished"


def state_of(folder: Path, record: RunRecord) -> State:
    """How the run in a folder stands, whatever its last process had time to write."""
    if is_worked_on(folder):
        return State.RUNNING
    return State.STOPPED if record.status == "running" else State(record.status)


def find_runs(folder: Path) -> list[Path]:
    """The folders below one, or it itself, that hold a run. Raises UsageError where it is none."""
    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder; give one that runs are in")

    def below() -> Iterator[Path]:
        for path, folders, files in os.walk(folder):
            if "run.json" in files:
                folders.clear()  # what is in a run's folder is its own
                yield Path(path)

    return sorted(below())


def size_of(folder: Path) -> int:
    """Bytes that a folder takes on disk; a file of several names counts once."""
    seen = {}
    for path, folders, files in os.walk(folder):
        for name in (*folders, *files):
            with suppress(FileNotFoundError):  # a run that goes on removes some meanwhile
                status = Path(path, name).lstat()
                seen[status.st_dev, status.st_ino] = status.st_blocks * BLOCK
    return sum(seen.values())


@dataclass
class Spare:
    """What can go from a run's folder, with nothing lost."""

    folder: Path
    leftovers: list[Path] = field(default_factory=list)
    """Scratch, half-written files, and what profilers and compilers left."""
    copies: list[list[Path]] = field(default_factory=list)
    """Files of the same content, which can be one file of several names."""
    freed: int = 0
    """Bytes."""


def spare_of(folder: Path) -> Spare:
    """What can go from a finished run. All that a run records is kept: resume, replay and whoever
    reads a run need it."""
    found = Spare(folder)
    scratch = Trace(folder).scratch
    patterns = (scratch.name, ".*.partial", *COMPILED)
    every = {path for pattern in patterns for path in folder.rglob(pattern)}
    found.leftovers = sorted(p for p in every if every.isdisjoint(p.parents))
    for path in found.leftovers:
        blocks = path.lstat().st_blocks * BLOCK
        found.freed += blocks + (size_of(path) if path.is_dir() else 0)
    for first, *others in _alike(folder, every):
        apart = [path for path in others if not path.samefile(first)]
        if apart:
            found.copies.append([first, *apart])
            found.freed += sum(path.stat().st_blocks * BLOCK for path in apart)
    return found


def _alike(folder: Path, gone: set[Path]) -> list[list[Path]]:
    """Files of one content, several names, but for those below what is `gone`."""
    alike = defaultdict(list)
    for path in sorted(folder.rglob("*")):
        whole = path.suffix in LINKED and path.is_file() and not path.is_symlink()
        if whole and gone.isdisjoint([path, *path.parents]):
            alike[hashlib.sha256(path.read_bytes()).digest()].append(path)
    return [paths for paths in alike.values() if len(paths) > 1]


def free(folder: Path) -> int:
    """Free what can go from a finished run's folder; how many bytes. It holds the folder's lock, so
    that nobody begins to work there. Raises UsageError where somebody does, or where the run is not
    finished."""
    with folder_lock(folder):
        if Trace(folder).run_record().status != "finished":
            raise UsageError(f"{folder} is not finished and is left as it is")
        before = size_of(folder)
        spare = spare_of(folder)
        for path in spare.leftovers:
            if path.is_dir():
                remove(path)
            else:
                path.unlink()
        for first, *others in spare.copies:
            for path in others:
                partial = path.with_name(f".{path.name}.partial")
                partial.unlink(missing_ok=True)
                partial.hardlink_to(first)
                partial.replace(path)
        return before - size_of(folder)

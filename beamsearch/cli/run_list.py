"""Runs as the list of them shows them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from beamsearch.errors import UsageError
from beamsearch.records.amounts import amount
from beamsearch.records.measurement import Measurement
from beamsearch.records.packed import ARCHIVE
from beamsearch.records.record import Record
from beamsearch.records.trace import Trace
from beamsearch.report.numbers import progress, tell
from beamsearch.run.folders import Spare, State, size_of, state_of

UNITS = {"d": 86400, "h": 3600, "min": 60}
"""Seconds of the units that an age is told in; the largest that it has one of."""


class Listed(Record):
    """A run in a line."""

    folder: str
    problem: str
    state: State
    packed: bool
    """Whether its trace is one archive."""
    who_thinks: str
    best: str | None
    time: Measurement | None
    """Of the best, by the run's confirmation where it has one."""
    over_input: float | None
    over: dict[str, float]
    """Speedup over each baseline."""
    of_floor: float | None
    told: str
    """The last five as `show` tells them."""
    rounds: int
    candidates: int
    correct: int
    size_bytes: int
    """On disk."""
    age_s: float
    """Since its record was last written."""


def listed(folders: Sequence[Path], unreadable: Callable[[str], None]) -> list[Listed]:
    """A row a run, that changed last first; `unreadable` takes why one cannot be read."""
    rows = []
    for folder in folders:
        try:
            rows.append(_row(folder))
        except UsageError as error:
            unreadable(f"{folder} is left out: {' '.join(str(error).split())}")
    return sorted(rows, key=lambda row: row.age_s)


def _row(folder: Path) -> Listed:
    trace = Trace(folder)
    record = trace.run_record()
    now = progress(record)
    return Listed(
        folder=str(folder),
        problem=record.problem,
        state=state_of(folder, record),
        packed=(folder / ARCHIVE).is_file(),
        who_thinks=record.who_thinks,
        best=now.best,
        time=now.time,
        over_input=now.over_input,
        over=now.over,
        of_floor=now.of_floor,
        told=tell(now),
        rounds=max(0, len(record.rounds) - 1),
        candidates=record.totals.candidates,
        correct=record.totals.correct,
        size_bytes=size_of(folder),
        age_s=max(0.0, time.time() - trace.run_file.stat().st_mtime),
    )


def lines(rows: Sequence[Listed]) -> list[str]:
    """Two lines a run, and their sum."""
    told = []
    for row in rows:
        told.append(row.folder)
        told.append(
            f"    {row.problem}, {row.state}{', packed' if row.packed else ''}: {row.told}; "
            f"{amount(row.rounds, 'round')}, {amount(row.candidates, 'candidate')}, "
            f"{row.correct} correct; "
            f"{in_bytes(row.size_bytes)}, changed {age(row.age_s)} ago"
        )
    whole = in_bytes(sum(row.size_bytes for row in rows))
    return [*told, f"{amount(len(rows), 'run')}, {whole}"]


def spare_line(spare: Spare) -> str:
    """What can go from a run."""
    parts = [path.name for path in spare.leftovers]
    copies = sum(len(paths) - 1 for paths in spare.copies)
    parts += [f"{copies} copies"] if copies else []
    return f"{spare.folder}: {in_bytes(spare.freed)} ({', '.join(parts)})"


def in_bytes(count: int) -> str:
    """`1.2 GB`, `3.4 MB`, `12 kB`."""
    for unit, size in (("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count / 1e3:.0f} kB"


def age(seconds: float) -> str:
    """`3 d`, `5 h`, `12 min`, `40 s`."""
    for unit, size in UNITS.items():
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"

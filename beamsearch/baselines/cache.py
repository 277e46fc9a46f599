"""Records that outlive a run: measured once for a machine, kept in the cache folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from beamsearch.errors import UsageError
from beamsearch.records.record import R
from beamsearch.records.trace import read_record, write_record

if TYPE_CHECKING:
    from pydantic import BaseModel


def read_kept(path: Path, kind: type[R]) -> R | None:
    """What is kept, or None: a file of an older format or half gone is measured anew."""
    if not path.is_file():
        return None
    try:
        return read_record(path, kind)
    except UsageError:
        return None


def keep(path: Path, record: BaseModel) -> None:
    """Keep a record for the next run; where the folder cannot be written nothing is kept, which
    costs the next run some time and no correctness (`doctor` says so)."""
    try:
        write_record(path, record)
    except (UsageError, OSError):
        return

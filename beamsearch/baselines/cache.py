"""Records that outlive a run: measured once for a machine, in the cache folder."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pydantic import BaseModel

from beamsearch.errors import UsageError
from beamsearch.records.record import R
from beamsearch.records.trace import read_record, write_record


def digest_of(*facts: object) -> str:
    """A file's name for what depends on these facts."""
    return hashlib.sha256("\0".join(map(str, facts)).encode()).hexdigest()[:24]


def read_cached(path: Path, kind: type[R]) -> R | None:
    """None also for a file of an older format or half gone, which is then measured anew."""
    with suppress(UsageError):
        return read_record(path, kind)
    return None


def write_cached(path: Path, record: BaseModel) -> None:
    """Where the folder cannot be written nothing is cached, which costs the next run some time and
    no correctness (`doctor` says so)."""
    with suppress(UsageError, OSError):
        write_record(path, record)


def cached(path: Path, kind: type[R], measure: Callable[[], R]) -> R:
    """The record in the cache, else what `measure` gives now, which is cached."""
    record = read_cached(path, kind)
    if record is None:
        record = measure()
        write_cached(path, record)
    return record

"""Kernel sources as files that candidates' processes import."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Mapping
from pathlib import Path

from beamsearch.errors import KernelError
from beamsearch.records.job import Subject


def source_of(subject: Subject) -> str:
    """The source of a kernel subject. Raises KernelError for another."""
    if subject.kind != "kernel" or subject.source is None:
        raise KernelError(f"{subject.name} is no kernel with a source")
    return subject.source


def source_key(source: str) -> str:
    """Sixteen hex digits of a source."""
    return hashlib.sha256(source.encode()).hexdigest()[:16]


def write_source(scratch: Path, source: str) -> str:
    """Path of a file with this source, the same whenever the source is."""
    folder = scratch / "sources" / source_key(source)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "kernel.py"
    if not path.exists():
        draft = folder / f"{threading.get_ident()}.draft"
        draft.write_text(source)
        draft.replace(path)
    return str(path)


def write_sources(scratch: Path, key: str, sources: Mapping[str, str]) -> dict[str, str]:
    """Name -> path of a file with its source, all in the folder of that key."""
    folder = scratch / "sources" / key
    folder.mkdir(parents=True, exist_ok=True)
    paths = {}
    for number, (name, source) in enumerate(sources.items()):
        path = folder / f"form_{number}.py"
        path.write_text(source)
        paths[name] = str(path)
    return paths

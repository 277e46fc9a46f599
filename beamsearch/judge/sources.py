"""Kernel sources as files that candidates' processes import."""

import hashlib
import threading
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


def write_source(scratch: Path, source: str, key: str = "", name: str = "kernel.py") -> str:
    """Path of a file with this source, the same whenever the source is; in the folder of the key
    where one is given, for sources that one process imports."""
    path = scratch / "sources" / (key or source_key(source)) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if key or not path.exists():
        draft = path.with_name(f"{threading.get_ident()}.draft")
        draft.write_text(source)
        draft.replace(path)
    return str(path)

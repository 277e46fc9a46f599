"""The long texts of a page: compressed inside it while there is room, beside it from then on."""

from __future__ import annotations

import base64
import gzip
import os
import shutil
from pathlib import Path
from urllib.parse import quote

from beamsearch.records.trace import Trace

ROOM = 4_000_000
"""Characters of compressed texts that a page holds at most: under 5 MB with all the rest."""


class Texts:
    """Texts by name. What a browser shows of one is unpacked when it is asked for."""

    def __init__(self, page: Path, trace: Trace) -> None:
        self._page = page
        self._trace = trace
        self._files: dict[str, Path] = {}
        self.packed: dict[str, str] = {}
        """Name -> gzip in base64."""
        self._used = 0
        self._within = page.resolve().parent == trace.folder.resolve()

    @property
    def full(self) -> bool:
        """Whether what comes now stands beside the page."""
        return self._used >= ROOM

    def add(self, name: str, text: str) -> str:
        """Keep a text inside the page, and say its name there."""
        if name not in self.packed:
            packed = base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()
            self.packed[name] = packed
            self._used += len(packed)
        return name

    def link(self, path: Path) -> str:
        """The place beside the page where a file of the trace is read."""
        inside = self._trace.relative(path)
        if not self._within:
            folder = self._page.with_name(f"{self._page.stem}_texts")
            self._files[inside] = folder / f"{inside.replace('/', '_')}.txt"
            inside = os.path.relpath(self._files[inside], self._page.parent)
        return quote(inside)

    def write(self) -> None:
        """Write what stands beside the page. Raises OSError where it cannot."""
        for inside, target in self._files.items():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self._trace.folder / inside, target)

"""Triton's GPU dialect (TTGIR) as text: where its operations come from, and what its names mean."""

from __future__ import annotations

import re
from collections.abc import Mapping

_ALIAS = re.compile(r"^#(\w+) = (#ttg\.\w+<\{.*\}>)\s*$")
_LOCATION = re.compile(r"^#(loc\w*) = loc\((.*)\)\s*$")
_FILE_LINE = re.compile(r'^"([^"]*)":(\d+):')


class Dialect:
    """A module in rows."""

    def __init__(self, ttgir: str, starts: Mapping[int, int]) -> None:
        """`starts`: lines that continue a statement -> its first line."""
        self.rows = ttgir.splitlines()
        self.aliases: dict[str, str] = {}
        """Name of a layout -> the layout."""
        self._starts = starts
        self._locations: dict[str, str] = {}
        for row in self.rows:
            if match := _ALIAS.match(row):
                self.aliases[match[1]] = match[2]
            elif match := _LOCATION.match(row):
                self._locations[match[1]] = match[2]

    def line(self, row: str) -> int | None:
        """The statement of the source that a row comes from: of an inlined function, the one inside
        it."""
        where = re.search(r"loc\((.*)\)\s*$", row)
        line = self._line(where[1]) if where else None
        return None if line is None else self._starts.get(line, line)

    def _line(self, text: str, depth: int = 0) -> int | None:
        if match := _FILE_LINE.match(text):
            return int(match[2])
        inner = re.search(r"#(loc\w*)", text)
        if inner and inner[1] in self._locations and depth < 20:
            return self._line(self._locations[inner[1]], depth + 1)
        return None

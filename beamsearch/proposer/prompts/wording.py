"""Wording that all parts of a prompt share."""

from __future__ import annotations

import re

from beamsearch.records.measurement import Measurement

REASON_CHARACTERS = 240


def size(count: float) -> str:
    """Bytes in decimal units."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.4g} {unit}"
    return f"{count:.0f} bytes"


def shape(sizes: tuple[int, ...]) -> str:
    """A shape as `(16, 32)`."""
    return f"({', '.join(str(n) for n in sizes)}{',' if len(sizes) == 1 else ''})"


def one_line(text: str, most: int = REASON_CHARACTERS) -> str:
    """The text on one line, cut to its first `most` characters."""
    text = re.sub(r"\s+", " ", text).strip()
    return text if len(text) <= most else text[: most - 1] + "…"


def tilde(time: Measurement) -> str:
    """`~` before a modelled time."""
    return "~" if time.source == "modelled" else ""

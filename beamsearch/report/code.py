"""Kernels as a page shows them: highlighted, beside their profile, and against their parent."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

from kernel_profiling.ncu.line_counters import annotate
from kernel_profiling.profile import Profile

CONTEXT = 3
KEPT = 1024
"""Highlighted sources that are kept: a run highlights each while the GPU is busy."""
_BIDI = (*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C)
_HIDDEN = (*range(0x7F, 0xA0), *_BIDI, 0x200B, 0x2028, 0x2029, 0xFEFF, *range(0xD800, 0xE000))
_VISIBLE = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"}
_VISIBLE |= {code: f"⟨U+{code:04X}⟩" for code in _HIDDEN}
_SIGNS = re.compile(f"[{re.escape(''.join(map(chr, _VISIBLE)))}]")


def visible(text: str) -> str:
    """The text with what a reader would not see, or what reorders a line, as visible signs: an
    escape as ␛, a change of direction as its number."""
    return _SIGNS.sub(lambda found: _VISIBLE[ord(found[0])], text)


def highlighted(source: str) -> Sequence[str]:
    """HTML of each line of a Python source, safe to put into a page."""
    return _highlighted(visible(source))


@lru_cache(maxsize=KEPT)
def _highlighted(source: str) -> Sequence[str]:
    from pygments.lexers import PythonLexer

    return _lines(source, PythonLexer(stripnl=False, ensurenl=False))


def difference(before: str, after: str) -> list[str]:
    """HTML of each line of the difference of two sources; empty where they are equal."""
    from pygments.lexers import DiffLexer

    one, other = (visible(text).splitlines() for text in (before, after))
    lines = difflib.unified_diff(one, other, lineterm="", n=CONTEXT)
    text = "\n".join(line for line in lines if not line.startswith(("---", "+++")))
    return _lines(text, DiffLexer(stripnl=False, ensurenl=False)) if text else []


def annotated(source: str, profile: Profile) -> tuple[str, list[tuple[str, float, str]]]:
    """The columns' head, and each line's counters, its share (0..1) of the stalls, else of the
    instructions, and its HTML."""
    source = visible(source)
    head, *rows = annotate(profile, source).splitlines()
    width = head.index("|")
    margins = [row[:width].ljust(width) for row in rows]
    return head[:width], [
        (margin, _share(margin), html)
        for margin, html in zip(margins, highlighted(source), strict=False)
    ]


def _share(margin: str) -> float:
    """Of the stalls; of the instructions where a profile has no stalls."""
    for cell in (margin[:6], margin[7:13]):
        if cell.strip():
            return float(cell) / 100
    return 0.0


@cache
def _formatter() -> Any:
    from pygments.formatters import HtmlFormatter

    return HtmlFormatter(nowrap=True)


def _lines(text: str, lexer: Any) -> list[str]:
    from pygments import highlight

    html: str = highlight(visible(text), lexer, _formatter())
    return html.removesuffix("\n").split("\n")

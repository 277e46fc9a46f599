"""Patches in a reply: unified diffs and search/replace blocks, applied to the kernel shown."""

from __future__ import annotations

import re

_BLOCK = re.compile(
    r"^<{5,9} ?SEARCH\s*?\n(.*?)^={5,9}\s*?\n(.*?)^>{5,9} ?REPLACE\s*?$", re.MULTILINE | re.DOTALL
)
_HUNK = re.compile(r"^@@(?: -(\d+).*?@@)?.*$")


class DoesNotApply(ValueError):
    """A patch that does not fit the kernel; the message says which part, to be shown its author."""


def is_patch(text: str) -> bool:
    """Whether a fence's text is a patch in one of the two forms."""
    return _BLOCK.search(text) is not None or any(_HUNK.match(s) for s in text.splitlines())


def apply_patch(patch: str, source: str) -> str:
    """The source with every change of the patch. Raises DoesNotApply; nothing is half applied.

    A place is found by its text; the line numbers of a diff, which models count badly, only choose
    among several places. Blanks at the ends of lines do not matter.
    """
    lines = source.splitlines()
    if _BLOCK.search(patch):
        for match in _BLOCK.finditer(patch):
            lines = _replaced(lines, match[1].splitlines(), match[2].splitlines(), None)
    else:
        for near, old, new in _hunks(patch):
            lines = _replaced(lines, old, new, near)
    return "\n".join(lines) + "\n"


def _hunks(patch: str) -> list[tuple[int | None, list[str], list[str]]]:
    """Each hunk: the line it says it is at, the lines it finds, and those it puts there."""
    hunks: list[tuple[int | None, list[str], list[str]]] = []
    for line in patch.splitlines():
        head = _HUNK.match(line)
        if head:
            hunks.append((int(head[1]) if head[1] else None, [], []))
        elif hunks and not line.startswith("\\"):
            _, old, new = hunks[-1]
            mark, text = line[:1], line[1:]
            if mark != "+":
                old.append(text)
            if mark != "-":
                new.append(text)
    return hunks


def _replaced(lines: list[str], old: list[str], new: list[str], near: int | None) -> list[str]:
    if not old:
        raise DoesNotApply("a part of the patch names no line of the kernel to change")
    wanted = [line.rstrip() for line in old]
    have = [line.rstrip() for line in lines]
    places = [n for n in range(len(have) - len(old) + 1) if have[n : n + len(old)] == wanted]
    first = next((line.strip() for line in old if line.strip()), "")
    if not places:
        raise DoesNotApply(f"the kernel has no such lines, from `{first}` on")
    if len(places) > 1 and near is None:
        raise DoesNotApply(f"the kernel has these lines {len(places)} times, from `{first}` on")
    place = min(places, key=lambda n: abs(n + 1 - (near or 0)))
    return lines[:place] + new + lines[place + len(old) :]

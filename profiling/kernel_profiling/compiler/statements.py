"""Which statement a source line belongs to: compilers name any line of one that spans several.

Triton 3.9 also counts the lines inside a block of inline assembly on from the block's own, so that
a load carries the line one to four below it.
"""

from __future__ import annotations

import ast
import functools
import linecache
import re
from collections import Counter, defaultdict
from collections.abc import Sequence

from kernel_profiling.syntax import parse

_ACCESS = re.compile(r"\b(load|store|gather|scatter|atomic_\w+)\s*\(")
_LOC = re.compile(r"\s*\.loc\s+\d+\s+(\d+)")
_ASSEMBLY = "inline_asm_elementwise"
MOST_SHIFTED = 8
"""Lines that a memory instruction may be below its own: one more for each word it moves."""


@functools.lru_cache(maxsize=64)
def _starts(source: str) -> dict[int, int]:
    try:
        tree = parse(source)
    except SyntaxError:
        return {}
    starts: dict[int, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and not hasattr(node, "body"):
            for line in range(node.lineno + 1, (node.end_lineno or node.lineno) + 1):
                starts[line] = node.lineno
    return starts


@functools.lru_cache(maxsize=64)
def assembly_lines(source: str) -> frozenset[int]:
    """Lines of the calls of `tl.inline_asm_elementwise` in a kernel's source; none of a source that
    this Python cannot parse."""
    try:
        tree = parse(source)
    except SyntaxError:
        return frozenset()
    calls = (
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(_ASSEMBLY)
    )
    return frozenset(n for c in calls for n in range(c.lineno, (c.end_lineno or c.lineno) + 1))


def statement_starts(path: str) -> dict[int, int]:
    """Line -> first line of its statement, for lines that continue one; empty if unreadable."""
    linecache.checkcache(path)
    return _starts("".join(linecache.getlines(path)))


def asm_lines(ptx: str) -> dict[int, int]:
    """Line that a memory instruction in inline assembly carries -> line of its block, where they
    differ. Where one line stands for several blocks, the most frequent."""
    seen: dict[int, Counter[int]] = defaultdict(Counter)
    block: list[int] | None = None
    for row in ptx.splitlines():
        if "begin inline asm" in row:
            block = []
        elif "end inline asm" in row:
            if block:
                seen[block[-1]][block[0]] += 1
            block = None
        elif block is not None and (match := _LOC.match(row)):
            block.append(int(match[1]))
    best = {line: counts.most_common(1)[0][0] for line, counts in seen.items()}
    return {line: own for line, own in best.items() if line != own}


def access_line(line: int, source: Sequence[str]) -> int:
    """The line of a memory instruction that carries `line`: the next one above that says so.

    For where only the source is there to tell; the line itself where no line near does.
    """
    for number in range(line, max(0, line - MOST_SHIFTED - 1), -1):
        if number <= len(source) and _ACCESS.search(source[number - 1]):
            return number
    return line

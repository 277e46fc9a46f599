"""Which statement a source line belongs to: compilers name any line of one that spans several."""

from __future__ import annotations

import ast
import functools
import linecache


@functools.lru_cache(maxsize=64)
def _starts(source: str) -> dict[int, int]:
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return {}
    starts: dict[int, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and not hasattr(node, "body"):
            for line in range(node.lineno + 1, (node.end_lineno or node.lineno) + 1):
                starts[line] = node.lineno
    return starts


def statement_starts(path: str) -> dict[int, int]:
    """Line -> first line of its statement, for lines that continue one; empty if unreadable."""
    linecache.checkcache(path)
    return _starts("".join(linecache.getlines(path)))

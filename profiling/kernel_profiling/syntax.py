"""Parses Python, from any thread."""

from __future__ import annotations

import ast
import threading

_lock = threading.RLock()


def parse(source: str, filename: str = "<unknown>") -> ast.Module:
    """`ast.parse`, one thread at a time: the parser of Python up to 3.12 counts its depth for all
    threads together, and fails where garbage collection changes threads (CPython's gh-106905).
    Raises SyntaxError and ValueError as it does."""
    with _lock:
        return ast.parse(source, filename=filename)


def expression(text: str) -> ast.expr:
    """The expression that `text` is, parsed as `parse` does."""
    with _lock:
        return ast.parse(text, mode="eval").body

"""Loops of which a few turns cannot stand for all."""

from __future__ import annotations

import ast
import functools
import linecache
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from kernel_profiling.syntax import parse


class Loops(NamedTuple):
    """Lines of `for` loops in a kernel's file."""

    with_memory: frozenset[int] = frozenset()
    """In which a condition for a store follows from a variable that is carried from turn to turn,
    such as the step within a tile of a loop over the steps of all tiles."""
    collecting: frozenset[int] = frozenset()
    """In which a tuple grows by a value a turn: later code counts on all of them."""


def loops_of(path: str) -> Loops:
    """Those of a file; none where it cannot be read."""
    linecache.checkcache(path)
    return _found("".join(linecache.getlines(path)))


@functools.lru_cache(maxsize=64)
def _found(source: str) -> Loops:
    try:
        tree = parse(source)
    except SyntaxError:
        return Loops()
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.For)]
    return Loops(
        frozenset(loop.lineno for loop in loops if _has_memory(loop)),
        frozenset(loop.lineno for loop in loops if _collects(loop)),
    )


def _collects(loop: ast.For) -> bool:
    return any(
        isinstance(node, ast.BinOp | ast.AugAssign)
        and isinstance(node.op, ast.Add)
        and isinstance(node.right if isinstance(node, ast.BinOp) else node.value, ast.Tuple)
        for node in ast.walk(loop)
    )


def _has_memory(loop: ast.For) -> bool:
    following = _carried(loop.body)
    statements = [node for part in loop.body for node in ast.walk(part)]
    assignments = [node for node in statements if isinstance(node, ast.Assign)]
    size = -1
    while size != len(following):  # what is computed from it follows from it
        size = len(following)
        for node in assignments:
            if following & set(_names(node.value)):
                following |= {name for target in node.targets for name in _names(target)}
    return any(
        isinstance(node, ast.If)
        and following & set(_names(node.test))
        and any(_may_store(part) for part in (*node.body, *node.orelse))
        for node in statements
    )


def _carried(body: Sequence[ast.stmt]) -> set[str]:
    """Names that a turn reads before it gives them a value, and gives one."""
    assigned: set[str] = set()
    early: set[str] = set()
    for statement in body:
        for part in [statement, *ast.walk(statement)]:
            if isinstance(part, ast.AugAssign) and isinstance(part.target, ast.Name):
                early |= {part.target.id} - assigned
        early |= {name for name in _names(statement, ast.Load) if name not in assigned}
        assigned |= set(_names(statement, ast.Store))
    return early & assigned


def _names(node: ast.AST, context: type[ast.expr_context] = ast.expr_context) -> Iterator[str]:
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and isinstance(part.ctx, context):
            yield part.id


def _may_store(node: ast.AST) -> bool:
    """Whether there is a store or an atomic, or a call of a function that may hold one."""
    calls = (part.func for part in ast.walk(node) if isinstance(part, ast.Call))
    return any(
        isinstance(called, ast.Name)
        or (
            isinstance(called, ast.Attribute)
            and ("store" in called.attr or "atomic" in called.attr)
        )
        for called in calls
    )

"""The whole numbers of a problem's file that may be its sizes, and other values for them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from types import ModuleType

from kernel_profiling.syntax import parse

MAKERS = ("get_inputs", "get_init_inputs")
"""Functions whose own numbers may be sizes."""
SMALL = "SMALL"
"""Name of the small sizes that a problem offers itself."""
SMALL_MAKERS = ("get_small_inputs", "get_small_init_inputs")
"""Functions by which it offers small inputs where sizes say too little. The first one's name among
the sizes of a shrunk problem has them take the places of `MAKERS`."""


@dataclass(frozen=True)
class Size:
    """A place in a module's source where a size is said."""

    name: str
    """The variable's; with a number in brackets for a part of one, or for the n-th number of a
    function."""
    replace: Callable[[int], None]
    """Put another number in its place."""
    read: Callable[[ModuleType], object]
    """Its value in the executed module."""
    place: ast.expr
    """What of the source says it."""


def rewritten(source: str, sizes: Mapping[str, int]) -> str:
    """The source with other numbers for the sizes of these names, and nothing else changed."""
    lines = [line.encode() for line in source.split("\n")]
    places = [
        (size.place, sizes[size.name]) for size in sizes_of(parse(source)) if size.name in sizes
    ]
    for place, number in sorted(places, key=lambda item: (-item[0].lineno, -item[0].col_offset)):
        first, last = place.lineno - 1, (place.end_lineno or place.lineno) - 1
        before, after = lines[first][: place.col_offset], lines[last][place.end_col_offset :]
        lines[first : last + 1] = [before + str(number).encode() + after]
    return b"\n".join(lines).decode()


def sizes_of(tree: ast.Module) -> Iterator[Size]:
    """Every place: `a = 4`, `a = b = 4`, `a, b = 4, 8`, `a = (4, 8)`, and the numbers of the
    functions that make inputs. Not all of them are sizes, nor whole numbers."""
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            yield from _assigned(target, node.value, partial(setattr, node, "value"))
        elif isinstance(node, ast.FunctionDef) and node.name in MAKERS:
            yield from _literals(node.name, node)


def _assigned(target: ast.expr, value: ast.expr, put: Callable[[ast.expr], None]) -> Iterator[Size]:
    match target, value:
        case ((ast.Tuple(names) | ast.List(names)), (ast.Tuple(values) | ast.List(values))):
            if len(names) == len(values):
                for index, (name, part) in enumerate(zip(names, values, strict=True)):
                    yield from _assigned(name, part, partial(values.__setitem__, index))
        case ast.Name(name), ast.Tuple() | ast.List():
            yield from _literals(name, value)
        case ast.Name(name), _:
            yield Size(
                name,
                lambda new: put(ast.Constant(new)),
                lambda module: getattr(module, name, None),
                value,
            )


def _literals(name: str, node: ast.AST) -> Iterator[Size]:
    """The whole numbers that stand in a piece of source."""
    constants = [c for c in ast.walk(node) if isinstance(c, ast.Constant) and type(c.value) is int]
    for number, constant in enumerate(constants):
        put = partial(setattr, constant, "value")
        yield Size(f"{name}[{number}]", put, partial(_said, constant.value), constant)


def _said(value: object, _: ModuleType) -> object:
    return value

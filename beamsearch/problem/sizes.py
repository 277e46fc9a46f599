"""The whole numbers of a problem's file that may be its sizes, and other values for them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

MAKERS = ("get_inputs", "get_init_inputs")
"""Functions whose own numbers may be sizes."""


@dataclass(frozen=True)
class Size:
    """A place in a module's source where a size is said."""

    name: str
    """The variable's; with a number in brackets for a part of one, or for the n-th number of a
    function."""
    replace: Callable[[Any], None]
    """Put another expression in its place."""
    read: Callable[[ModuleType], object]
    """Its value in the executed module."""


def sizes_of(tree: ast.Module) -> Iterator[Size]:
    """Every place: `a = 4`, `a = b = 4`, `a, b = 4, 8`, `a = (4, 8)`, and the numbers of the
    functions that make inputs. Not all of them are sizes, nor whole numbers."""
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            yield from _assigned(target, node.value, partial(setattr, node, "value"))
        elif isinstance(node, ast.FunctionDef) and node.name in MAKERS:
            constants = [c for c in ast.walk(node) if isinstance(c, ast.Constant)]
            for number, constant in enumerate(c for c in constants if type(c.value) is int):
                yield _literal(f"{node.name}[{number}]", constant)


def _assigned(target: ast.expr, value: ast.expr, replace: Callable[[Any], None]) -> Iterator[Size]:
    match target, value:
        case ((ast.Tuple(names) | ast.List(names)), (ast.Tuple(values) | ast.List(values))):
            if len(names) == len(values):
                for index, (name, part) in enumerate(zip(names, values, strict=True)):
                    yield from _assigned(name, part, partial(values.__setitem__, index))
        case ast.Name(name), ast.Tuple() | ast.List():
            constants = [c for c in ast.walk(value) if isinstance(c, ast.Constant)]
            for number, constant in enumerate(c for c in constants if type(c.value) is int):
                yield _literal(f"{name}[{number}]", constant)
        case ast.Name(name), _:
            yield Size(name, replace, lambda module: getattr(module, name, None))


def _literal(name: str, constant: ast.Constant) -> Size:
    value = constant.value

    def replace(new: ast.Constant) -> None:
        constant.value = new.value

    return Size(name, replace, lambda module: value)

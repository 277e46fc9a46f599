"""An argument of a module's `__init__` as a person writes it: `dim=4096`, or `4096` by position."""

from __future__ import annotations

import ast
import builtins
import importlib.util
import re
from dataclasses import dataclass
from typing import Any

from beamsearch.errors import UsageError
from beamsearch.export.input_spec import Sizes
from beamsearch.export.origin import Origin

SHARED_FROM = 17
"""A whole number from here on that an input has as a size is that size; smaller ones (heads,
groups, windows) are equal to a batch by chance."""

_NAMED = re.compile(r"\s*([A-Za-z_]\w*)\s*=(?!=)(.*)", re.DOTALL)


@dataclass(frozen=True)
class InitArgument:
    """One argument."""

    name: str | None
    """None where it is given by position."""
    source: str
    """The expression, as the problem's file has it."""
    imports: tuple[str, ...]
    """Modules that the expression names."""
    value: Any


def parse_init(text: str, origin: Origin, sizes: Sizes) -> InitArgument:
    """An argument from the command line: any expression of literals, of what the module itself
    defines, of `torch`, of modules by their dotted name, and of the inputs' sizes by theirs.

    Raises UsageError.
    """
    named = _NAMED.fullmatch(text)
    name, told = (named[1], named[2]) if named else (None, text)
    try:
        tree = ast.parse(told.strip(), mode="eval")
    except (SyntaxError, ValueError) as error:
        raise UsageError(
            f"--init {text!r} is no Python value ({error}); write it as dim=4096 or "
            "\"activation='silu'\""
        ) from error
    place = _Placed(text, origin, sizes)
    source = ast.unparse(place.visit(tree))
    names: dict[str, Any] = {"source": origin.module, **sizes.values}
    try:
        for module in place.modules:
            names[module.partition(".")[0]] = importlib.import_module(module.partition(".")[0])
            importlib.import_module(module)
        value = eval(source, names)
    except Exception as error:
        raise UsageError(f"--init {text!r} fails: {type(error).__name__}: {error}") from error
    return InitArgument(name, source, tuple(sorted(place.modules)), value)


class _Placed(ast.NodeTransformer):
    """An expression with its names where a problem's file has them, and its sizes by name."""

    def __init__(self, text: str, origin: Origin, sizes: Sizes) -> None:
        self.text = text
        self.origin = origin
        self.sizes = sizes
        self.modules: set[str] = set()

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        value = node.value
        shared = self.sizes.named(value) if type(value) is int and value >= SHARED_FROM else None
        return ast.Name(shared, ast.Load()) if shared else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        dotted = ast.unparse(node)
        if re.fullmatch(r"[\w.]+", dotted):
            parts = dotted.split(".")
            for count in range(len(parts) - 1, 0, -1):
                if not self._is_ours(parts[0]) and _is_module(".".join(parts[:count])):
                    self.modules.add(".".join(parts[:count]))
                    return node
        self.generic_visit(node)
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self.sizes.values or hasattr(builtins, node.id):
            return node
        if self._is_ours(node.id):
            return ast.Attribute(ast.Name("source", ast.Load()), node.id, ast.Load())
        raise UsageError(
            f"--init {self.text!r}: {node.id} is neither a size of an input nor in the module; "
            f"a text wants quotes ('{node.id}')"
        )

    def _is_ours(self, name: str) -> bool:
        return name in self.sizes.values or hasattr(self.origin.module, name)


def _is_module(dotted: str) -> bool:
    try:
        return importlib.util.find_spec(dotted) is not None
    except (ImportError, ValueError):
        return False

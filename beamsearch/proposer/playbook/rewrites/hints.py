"""What a rewrite may know beside the source: the call's arguments at the problem's own shapes.

Only choices rest on these (how far to unroll, how wide a block); a rewrite's result is right at
every shape.
"""

from __future__ import annotations

import ast
import builtins
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

OPERATORS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
UNKNOWN = object()
"""A value that cannot be worked out."""


@dataclass(frozen=True)
class Shape:
    """A tensor of which only the shape is known."""

    sizes: tuple[int, ...]

    @property
    def elements(self) -> int:
        """How many elements it has."""
        return math.prod(self.sizes)


@dataclass(frozen=True, eq=False)
class Hints:
    """What is known of a call: arguments of `kernel_function` by name. Each is equal to itself
    alone, so that what was worked out with one can be kept by it."""

    arguments: Mapping[str, Any] = field(default_factory=dict)
    """A `Shape`, or a plain value."""

    def total_elements(self) -> int:
        """Elements of the largest tensor known; 0 where none is."""
        shapes = [value for value in self.arguments.values() if isinstance(value, Shape)]
        return max((shape.elements for shape in shapes), default=0)


class HostValues:
    """Works out a host function's values from its arguments, executing nothing."""

    def __init__(self, module: ast.Module, function: ast.AST, arguments: Mapping[str, Any]) -> None:
        self.names: dict[str, Any] = {}
        self._assign_all(module.body)
        self.names |= arguments
        self._assign_all(list(ast.walk(function)))

    def _assign_all(self, nodes: list[Any]) -> None:
        for node in nodes:
            for target in node.targets if isinstance(node, ast.Assign) else ():
                self._assign(target, self.value(node.value))

    def _assign(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            self.names[target.id] = value
        elif isinstance(target, ast.Tuple):
            if not isinstance(value, tuple) or len(value) != len(target.elts):
                value = (UNKNOWN,) * len(target.elts)
            for element, part in zip(target.elts, value, strict=True):
                self._assign(element, part)

    def value(self, node: ast.expr) -> Any:
        """The value of an expression, or UNKNOWN."""
        try:
            return self._value(node)
        except (TypeError, ValueError, ZeroDivisionError, IndexError, KeyError, OverflowError):
            return UNKNOWN

    def _value(self, node: ast.expr) -> Any:  # noqa: PLR0911, C901 - one case a kind of expression
        match node:
            case ast.Constant(value):
                return value
            case ast.Name(name):
                return self.names.get(name, UNKNOWN)
            case ast.BinOp(left, sign, right):
                return OPERATORS[type(sign)](self._value(left), self._value(right))
            case ast.UnaryOp(ast.USub(), operand):
                return -self._value(operand)
            case ast.Tuple(items) | ast.List(items):
                return tuple(map(self._value, items))
            case ast.Subscript(_, ast.Slice()):
                return UNKNOWN
            case ast.Subscript(whole, at):
                value, index = self._value(whole), self._value(at)
                return value if isinstance(value, int) and index == 0 else value[index]
            case ast.Attribute(whole, "shape"):
                value = self._value(whole)
                return value.sizes if isinstance(value, Shape) else UNKNOWN
            case ast.Call():
                return self._call(node)
            case ast.GeneratorExp(element, [generator]):
                results, outside = [], dict(self.names)
                for item in self._value(generator.iter):
                    self._assign(generator.target, item)
                    results.append(self.value(element))
                self.names = outside
                return tuple(results)
        return UNKNOWN

    def _call(self, node: ast.Call) -> Any:
        function = ast.unparse(node.func)
        arguments = [self._value(a) for a in node.args]
        if function.endswith("cdiv"):
            return -(-arguments[0] // arguments[1])
        if function.endswith("next_power_of_2"):
            return 1 << (arguments[0] - 1).bit_length()
        if function in ("min", "max", "int", "abs", "len"):
            return getattr(builtins, function)(*arguments)
        if isinstance(node.func, ast.Attribute):
            return _tensor_method(self._value(node.func.value), node.func.attr, arguments)
        return UNKNOWN


def _tensor_method(value: Any, name: str, arguments: list[Any]) -> Any:  # noqa: PLR0911
    if isinstance(value, Shape):
        if name in ("contiguous", "to", "detach"):
            return value
        if name == "numel":
            return value.elements
        if name == "size":
            return value.sizes[arguments[0]] if arguments else value.sizes
        if name == "stride" and arguments:
            return math.prod(value.sizes[arguments[0] % len(value.sizes) + 1 :])
    if name in ("empty", "zeros", "ones", "full", "new_empty", "new_zeros"):
        sizes = arguments[0] if isinstance(arguments[0], tuple) else tuple(arguments)
        return Shape(sizes) if all(isinstance(s, int) for s in sizes) else UNKNOWN
    if name in ("empty_like", "zeros_like") and isinstance(arguments[0], Shape):
        return arguments[0]
    return UNKNOWN

"""What a rewrite may know beside the source: the launch's values at the problem's own shapes.

Only choices rest on these (how far to unroll, how wide a block); a rewrite's result is right at
every shape.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from beamsearch.proposer.playbook.rewrites.source import Launch, Module, argument, parameters

OPERATORS: dict[type[ast.operator], Any] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
    ast.Div: lambda a, b: a / b,
    ast.Pow: lambda a, b: a**b,
}


@dataclass(frozen=True)
class Shape:
    """A tensor of which only the shape is known."""

    sizes: tuple[int, ...]

    @property
    def elements(self) -> int:
        """How many elements it has."""
        return math.prod(self.sizes)


@dataclass(frozen=True)
class Hints:
    """What is known of a call: arguments of `kernel_function` by name."""

    arguments: Mapping[str, Any] = field(default_factory=dict)
    """A `Shape`, or a plain value."""

    def launch_values(self, module: Module, kernel: str) -> dict[str, int]:
        """The integers a kernel's only launch passes, as far as they can be worked out."""
        launches = module.launches.get(kernel, [])
        if len(launches) != 1:
            return {}
        launch, node = launches[0], module.kernels[kernel]
        values = _Host(module, self.arguments).run(launch)
        found = {}
        for parameter in parameters(node):
            given = argument(node, launch, parameter.arg)
            if given is None:
                continue
            value = values.value(given)
            if isinstance(value, int) and not isinstance(value, bool):
                found[parameter.arg] = value
        return found

    def total_elements(self) -> int:
        """Elements of the largest tensor known; 0 where none is."""
        shapes = [value for value in self.arguments.values() if isinstance(value, Shape)]
        return max((shape.elements for shape in shapes), default=0)


class _Unknown:
    """A value that cannot be worked out."""


UNKNOWN = _Unknown()


class _Host:
    """Works out a host function's integers, executing nothing."""

    def __init__(self, module: Module, arguments: Mapping[str, Any]) -> None:
        self.names: dict[str, Any] = {}
        for node in module.tree.body:
            if isinstance(node, ast.Assign):
                self._assign(node.targets[0], self.value(node.value))
        self.arguments = arguments

    def run(self, launch: Launch) -> _Host:
        """Take in the assignments of the launch's function in order."""
        self.names |= self.arguments
        for node in ast.walk(launch.function):
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                self._assign(node.targets[0], self.value(node.value))
        return self

    def _assign(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Name):
            self.names[target.id] = value
        elif isinstance(target, ast.Tuple):
            parts = value if isinstance(value, tuple) else ()
            if len(parts) != len(target.elts):
                parts = (UNKNOWN,) * len(target.elts)
            for element, part in zip(target.elts, parts, strict=True):
                self._assign(element, part)

    def value(self, node: ast.expr) -> Any:
        """The value of an expression, or UNKNOWN."""
        try:
            return self._value(node)
        except (TypeError, ValueError, ZeroDivisionError, IndexError, KeyError, OverflowError):
            return UNKNOWN

    def _value(self, node: ast.expr) -> Any:  # noqa: PLR0911, C901 - one line a kind of expression
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name):
            return self.names.get(node.id, UNKNOWN)
        if isinstance(node, ast.BinOp):
            operate = OPERATORS[type(node.op)]
            return operate(self._value(node.left), self._value(node.right))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -self._value(node.operand)
        if isinstance(node, ast.Tuple | ast.List):
            return tuple(self._value(item) for item in node.elts)
        if isinstance(node, ast.Subscript):
            value = self._value(node.value)
            if isinstance(node.slice, ast.Slice):
                return UNKNOWN
            index = self._value(node.slice)
            return value if isinstance(value, int) and index == 0 else value[index]
        if isinstance(node, ast.Attribute):
            value = self._value(node.value)
            return value.sizes if isinstance(value, Shape) and node.attr == "shape" else UNKNOWN
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, ast.GeneratorExp) and len(node.generators) == 1:
            return self._comprehension(node)
        return UNKNOWN

    def _comprehension(self, node: ast.GeneratorExp) -> Any:
        generator, results, kept = node.generators[0], [], dict(self.names)
        for item in self._value(generator.iter):
            self._assign(generator.target, item)
            results.append(self.value(node.elt))
        self.names = kept
        return tuple(results)

    def _call(self, node: ast.Call) -> Any:
        function = ast.unparse(node.func)
        arguments = [self._value(a) for a in node.args]
        if function.endswith("cdiv"):
            return -(-arguments[0] // arguments[1])
        if function.endswith("next_power_of_2"):
            return 1 << (arguments[0] - 1).bit_length()
        if function in ("min", "max", "int", "abs", "len"):
            return _BUILTINS[function](*arguments)
        if isinstance(node.func, ast.Attribute):
            return _tensor_method(self._value(node.func.value), node.func.attr, arguments)
        return UNKNOWN


_BUILTINS: dict[str, Any] = {"min": min, "max": max, "int": int, "abs": abs, "len": len}


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

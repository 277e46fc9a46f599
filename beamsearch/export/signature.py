"""An operator's arguments, and how a winner's `kernel_function` is called with them."""

from __future__ import annotations

import ast
import keyword
from collections.abc import Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from beamsearch.errors import UsageError
from beamsearch.problem.instance import Instance
from beamsearch.problem.kernel import bound_by_position
from kernel_profiling.syntax import parse


@dataclass(frozen=True)
class Argument:
    """One argument of an operator."""

    name: str
    state: str | None = None
    """The dotted name of the parameter or buffer that it is; none for an input."""
    value: Any = None
    """What the problem has there: a `meta` tensor, or a plain value."""

    @property
    def annotation(self) -> str:
        """Its type in the operator's schema."""
        plain = {bool: "bool", int: "int", float: "float", str: "str"}
        return plain.get(type(self.value), "Tensor")


def arguments_of(instance: Instance) -> list[Argument]:
    """The inputs, then the parameters and buffers. Raises UsageError for an input that no operator
    takes."""
    import torch

    found: list[Argument] = []
    for name, value in zip(instance.arguments.forward, instance.inputs, strict=True):
        if not isinstance(value, torch.Tensor | bool | int | float | str):
            raise UsageError(
                f"forward takes {name}, a {type(value).__name__}: an operator takes tensors and "
                "plain numbers alone"
            )
        found.append(Argument(name, None, value))
    for dotted, value in instance.arguments.state.items():
        name = dotted.replace(".", "_").lstrip("_")
        name = name if name.isidentifier() and not keyword.iskeyword(name) else f"part_{name}"
        while any(name == other.name for other in found):
            name += "_"
        found.append(Argument(name, dotted, value))
    return found


def kernel_call(source: str, instance: Instance, arguments: list[Argument]) -> str:
    """The arguments in a call of `kernel_function`, as source: the operator's own by name, and the
    problem's settings as they are. The kernel's code is read, and not run.

    Raises UsageError where the call cannot be written, KernelError where it cannot be bound.
    """
    function = _kernel_function(source)
    given = function.args
    only = {argument.arg for argument in given.posonlyargs}
    if given.vararg or given.kwarg:
        raise UsageError("its kernel_function takes *args or **kwargs: name its arguments")
    places = bound_by_position(_stub(function), instance.arguments)
    values = instance.arguments.values
    words = {id(one.value): one.name for one in arguments if one.annotation == "Tensor"}
    words_of_plain = {one.name: one.name for one in arguments if one.annotation != "Tensor"}
    call = []
    for one in (*given.posonlyargs, *given.args, *given.kwonlyargs):
        known = places.get(one.arg, one.arg)
        if known in values:
            word = words.get(id(values[known])) or words_of_plain.get(known)
            word = _literal(known, values[known]) if word is None else word
            call.append(word if one.arg in only else f"{one.arg}={word}")
    return ", ".join(call)


def _kernel_function(source: str) -> ast.FunctionDef:
    for node in parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name == "kernel_function":
            return node
    raise UsageError(
        "its kernel is no plain function called kernel_function (a ModelNew holds weights of its "
        "own): only that can be exported"
    )


def _stub(function: ast.FunctionDef) -> ModuleType:
    """A module with a function of the same parameters that does nothing."""
    given = ast.parse(ast.unparse(function)).body[0]
    assert isinstance(given, ast.FunctionDef)
    given.body, given.decorator_list, given.returns = [ast.Pass()], [], None
    everything = given.args
    for one in (*everything.posonlyargs, *everything.args, *everything.kwonlyargs):
        one.annotation = None
    everything.defaults = [ast.Constant(None) for _ in everything.defaults]
    everything.kw_defaults = [d and ast.Constant(None) for d in everything.kw_defaults]
    module = ModuleType("stub")
    tree = ast.fix_missing_locations(ast.Module([given], []))
    exec(compile(tree, "kernel", "exec"), vars(module))
    return module


def _literal(name: str, value: Any) -> str:
    try:
        if ast.literal_eval(repr(value)) == value:
            return repr(value)
    except (ValueError, SyntaxError):
        pass
    raise UsageError(
        f"its kernel takes {name}, a {type(value).__name__} that cannot be written down as a value"
    )


def literals(values: Mapping[str, Any]) -> str:
    """A dictionary as source, a line each."""
    return "".join(f"    {name!r}: {value},\n" for name, value in values.items())

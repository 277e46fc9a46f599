"""A class or a function that no file can import, copied with all that it uses: one of a notebook,
or of the script that runs."""

from __future__ import annotations

import ast
import builtins
import inspect
import linecache
import sys
import textwrap
from importlib import import_module
from types import ModuleType
from typing import Any

from beamsearch.errors import UsageError
from beamsearch.export.input_spec import RESERVED
from beamsearch.export.origin import Origin, find_origin

ITSELF = "source = sys.modules[__name__]\n"
"""In a problem's file that holds the code itself."""


def origin_of(target: object) -> Origin:
    """Where a class or a function is: its module where that can be imported, else a copy of it. A
    text is as `find_origin` takes it. Raises UsageError."""
    if isinstance(target, str):
        return find_origin(target)
    if not (isinstance(target, type) or inspect.isfunction(target)):
        raise UsageError(
            f"a {type(target).__name__} is no class and no function; give the class and its "
            "arguments, or name what is built as my_model.py:block"
        )
    name = target.__qualname__
    if "<" in name:
        raise UsageError(f"{name} is defined inside a function; define it at the top")
    if target.__module__ != "__main__":
        return find_origin(f"{target.__module__}:{name}")
    copy = _Copy()
    copy.define(name, target)
    code = "\n\n".join([*copy.imports, *copy.parts])
    if name in RESERVED:  # the problem's own names would take its place
        code, name = _renamed(code, name), f"Given{name}"
    module = ModuleType("__main__")
    exec(code, module.__dict__)
    return Origin(f"{target.__qualname__} of a script", f"{code}\n\n{ITSELF}", module, name, True)


class _Copy:
    """What is copied so far, in an order in which it can be executed."""

    def __init__(self) -> None:
        self.imports: dict[str, None] = {}
        self.parts: list[str] = []
        self._seen: set[str] = set()

    def define(self, name: str, value: Any) -> None:
        """Copy what a global name stands for, and first what that uses. Raises UsageError."""
        if name in self._seen:
            return
        self._seen.add(name)
        module, own = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
        if isinstance(value, ModuleType):
            self.imports[f"import {value.__name__} as {name}"] = None
        elif module == "__main__" and (isinstance(value, type) or inspect.isfunction(value)):
            self._copy(value)
            if own != name:
                self.parts.append(f"{name} = {own}")
        elif module and own and getattr(import_module(module), own, None) is value:
            self.imports[f"from {module} import {own} as {name}"] = None
        elif type(value).__module__ == "torch" and type(value).__name__ == "dtype":
            self.imports["import torch"] = None
            self.parts.append(f"{name} = {value}")
        else:
            self.parts.append(f"{name} = {_literal(name, value)}")

    def _copy(self, value: Any) -> None:
        try:
            source = _source_of(value)
        except (OSError, TypeError) as error:
            raise UsageError(
                f"the source of {value.__qualname__} is not known ({error}); put it into a file, "
                "and name it as my_model.py:MyBlock"
            ) from error
        around = vars(sys.modules["__main__"])
        used = (node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name))
        for name in dict.fromkeys(used):
            if name in around and around[name] is not value and not hasattr(builtins, name):
                self.define(name, around[name])
        self.parts.append(source.rstrip())


def _source_of(value: Any) -> str:
    """Raises OSError where there is none. Before Python 3.13 only a function knows the cell of a
    notebook that it stands in, so a class is found beside its methods."""
    if not isinstance(value, type):
        return textwrap.dedent(inspect.getsource(value))
    method = next((own for own in vars(value).values() if inspect.isfunction(own)), None)
    if method is None:
        return inspect.getsource(value)
    lines = linecache.getlines(method.__code__.co_filename)
    for node in ast.walk(ast.parse("".join(lines))):
        if isinstance(node, ast.ClassDef) and node.name == value.__name__:
            first = min([node.lineno, *(part.lineno for part in node.decorator_list)])
            if first <= method.__code__.co_firstlineno <= (node.end_lineno or first):
                return textwrap.dedent("".join(lines[first - 1 : node.end_lineno]))
    return inspect.getsource(value)


def _literal(name: str, value: object) -> str:
    """A plain value as source. Whole numbers are written so that they are no sizes of the problem,
    which the judge would make smaller."""
    told = repr(value)
    try:
        ast.literal_eval(told)
    except (ValueError, SyntaxError) as error:
        raise UsageError(
            f"the code uses {name}, a {type(value).__name__}, which cannot be copied; put the code "
            "into a file, and name it as my_model.py:MyBlock"
        ) from error
    return f"int({told})" if type(value) is int else told


def _renamed(code: str, name: str) -> str:
    tree = ast.parse(code)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id == name:
            node.id = f"Given{name}"
        elif isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            node.name = f"Given{name}"
    return ast.unparse(tree)

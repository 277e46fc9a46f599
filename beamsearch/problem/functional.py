"""robust-kbench's problems: a functional reference with its sizes in a file of configurations."""

from __future__ import annotations

import ast
import json
import keyword
import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from beamsearch.errors import ProblemError
from kernel_profiling.syntax import parse

FILE = "func_forward.py"
CONFIGURATIONS = "config_forward.json"
KEPT = "_inputs_of_a_configuration"
"""The file's own `get_inputs`, in what it is converted to."""


_NUMBERED = re.compile(r"(.+):(\d+)")


def is_functional(path: Path) -> bool:
    """Whether this is such a reference."""
    return path.name == FILE and (path.parent / CONFIGURATIONS).is_file()


def split_number(name: str) -> tuple[str, int]:
    """`tasks/norm:2` as what is before the colon and the number of the configuration; 1 where none
    is named."""
    match = _NUMBERED.fullmatch(name)
    return (match[1], int(match[2])) if match else (name, 1)


@dataclass(frozen=True)
class Configuration:
    """Values of the parameters of a task's `Model` and of its `get_inputs`."""

    for_model: Mapping[str, Any]
    for_inputs: Mapping[str, Any]

    def __str__(self) -> str:
        """`rows=8, features=512`."""
        values = {**self.for_inputs, **self.for_model}
        return ", ".join(f"{name}={value!r}" for name, value in values.items())


def configurations(path: Path) -> list[Configuration]:
    """Those of a task, in order and each once: every combination of the lists for single ones, then
    of those for several, as robust-kbench combines them (its `ConfigTask`). Raises ProblemError."""
    try:
        told = json.loads((path.parent / CONFIGURATIONS).read_text())
        found: list[Configuration] = []
        for kind in ("single", "multi"):
            lists = [
                _listed(told, f"{kind}_{part}_configs") for part in ("init", "input", "shared")
            ]
            if kind == "multi" and not any(lists):
                continue
            for init, inputs, shared in product(*(one or [{}] for one in lists)):
                one = Configuration({**init, **shared}, {**inputs, **shared})
                found += [one] if one not in found else []
    except (OSError, ValueError) as error:
        raise ProblemError(f"{path} is not in robust-kbench's format: {error}") from error
    return found


def as_kernelbench(path: Path, number: int = 1) -> str:
    """The source in KernelBench's format: the numbers of a configuration, counted from 1, become
    sizes at the module's level, and `Model` gets its own by position. Raises ProblemError."""
    known = configurations(path)
    if not 0 < number <= len(known):
        listed = "; ".join(f":{place} {one}" for place, one in enumerate(known, 1))
        raise ProblemError(f"{path.parent} has no configuration {number}; it has {listed}")
    chosen = known[number - 1]
    try:
        source = path.read_text()
        tree = parse(source, filename=str(path))
        drawing = _function(tree, "get_inputs")
        building = _function(_model(tree), "__init__")
    except (OSError, ValueError, SyntaxError, LookupError) as error:
        raise ProblemError(f"{path} is not in robust-kbench's format: {error}") from error
    sizes: dict[str, int] = {}
    drawn = [f"{name}={_word(name, value, sizes)}" for name, value in chosen.for_inputs.items()
             if name in _defaults(drawing)]  # fmt: skip
    built = _positional(building, chosen.for_model, sizes)
    lines = [f"{name} = {value}" for name, value in sizes.items()]
    return "\n".join(
        (
            source.rstrip(),
            *("", "", f"{KEPT} = get_inputs", *lines),
            *("", "", "def get_inputs():", f"    return {KEPT}({', '.join(drawn)})"),
            *("", "", "def get_init_inputs():", f"    return [{', '.join(built)}]", ""),
        )
    )


def _listed(told: Any, name: str) -> list[dict[str, Any]]:
    found = (told.get(name) if isinstance(told, dict) else None) or []
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise ValueError(f"{name} is no list of configurations")
    return found


def _model(tree: ast.Module) -> ast.ClassDef:
    found = [n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Model"]
    if not found:
        raise LookupError("it has no class Model")
    return found[0]


def _function(owner: ast.Module | ast.ClassDef, name: str) -> ast.FunctionDef:
    found = [n for n in owner.body if isinstance(n, ast.FunctionDef) and n.name == name]
    if not found:
        raise LookupError(f"it has no {name}")
    return found[0]


def _defaults(function: ast.FunctionDef) -> dict[str, str | None]:
    """Parameter -> its default as source; none where it has none."""
    names = [argument.arg for argument in function.args.args if argument.arg != "self"]
    given = [ast.unparse(default) for default in function.args.defaults]
    return dict(zip(names, [*[None] * (len(names) - len(given)), *given], strict=True))


def _positional(
    function: ast.FunctionDef, values: Mapping[str, Any], sizes: dict[str, int]
) -> list[str]:
    """Its arguments in order, up to the last that has a value; defaults in between."""
    defaults = _defaults(function)
    last = max((n for n, name in enumerate(defaults, 1) if name in values), default=0)
    found = []
    for name, default in [*defaults.items()][:last]:
        if name not in values and default is None:
            raise ProblemError(f"its configuration says nothing of {name}")
        found.append(_word(name, values[name], sizes) if name in values else str(default))
    return found


def _word(name: str, value: Any, sizes: dict[str, int]) -> str:
    """A value as source: a whole number under its own name, which the module then has."""
    usable = name.isidentifier() and not keyword.iskeyword(name)
    if type(value) is int and usable and sizes.get(name, value) == value:
        sizes[name] = value
        return name
    return repr(value)

"""Where a user's module or function is, and how a problem's file gets at it."""

from __future__ import annotations

import hashlib
import importlib.util
import inspect
import json
import sys
import sysconfig
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from beamsearch.errors import UsageError

LOADING = '''FILE = {file}


def load():
    """The file as a module, executed once in a process."""
    name = {name}
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, FILE)
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        sys.path.append({folder})  # for what it imports from beside it
        try:
            spec.loader.exec_module(module)
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]


source = load()
'''
"""In a problem's file, where a file that is in no package is imported."""


@dataclass(frozen=True)
class Origin:
    """What was named: `my_model.py:MyBlock`, or `package.module:MyBlock`."""

    told: str
    """In words, with the whole path."""
    imports: str
    """Source that binds `source` to the module."""
    module: ModuleType
    attribute: str
    """Dotted, within the module."""
    copied: bool = False
    """Whether `imports` holds the code itself."""

    @property
    def target(self) -> Any:
        """The object itself. Raises UsageError where the module lacks it."""
        found: Any = self.module
        for name in self.attribute.split("."):
            if not hasattr(found, name):
                own = [n for n, v in vars(found).items() if callable(v) and not n.startswith("_")]
                have = ", ".join(own[:12]) or "nothing that can be called"
                raise UsageError(f"{self.told}: there is no {name}; it has {have}")
            found = getattr(found, name)
        return found


def find_origin(text: str) -> Origin:
    """The module that a text names, imported. Raises UsageError."""
    where, colon, attribute = text.rpartition(":")
    if not colon or not where or not all(part.isidentifier() for part in attribute.split(".")):
        raise UsageError(
            f"{text!r} names no module; write my_model.py:MyBlock, or package.module:MyBlock"
        )
    if not where.endswith(".py"):
        return _of_module(where, attribute, f"{where}:{attribute}")
    path = Path(where).resolve()
    if not path.is_file():
        raise UsageError(f"there is no file {where}; give the path of the file with {attribute}")
    told, root = f"{path}:{attribute}", path.parent
    if (root / "__init__.py").is_file():
        while (root / "__init__.py").is_file():
            root = root.parent
        dotted = ".".join(path.relative_to(root).with_suffix("").parts)
        return _of_module(dotted.removesuffix(".__init__"), attribute, told, root)
    name = f"{path.stem}_{hashlib.sha256(str(path).encode()).hexdigest()[:8]}"
    loading = LOADING.format(
        file=json.dumps(str(path)), name=json.dumps(name), folder=json.dumps(str(path.parent))
    )
    return Origin(told, loading, _executed(loading, told), attribute)


def _of_module(dotted: str, attribute: str, told: str, root: Path | None = None) -> Origin:
    """An importable module; `root` is the folder of its outermost package, where that is known."""
    if root is None:
        try:
            top = importlib.util.find_spec(dotted.partition(".")[0])
        except ValueError:
            top = None
        if top is None:
            raise UsageError(
                f"{told}: no module {dotted.partition('.')[0]!r} can be imported here; install it, "
                "or give a file (my_model.py:MyBlock)"
            )
        if top.origin and not top.origin.startswith(("built-in", "frozen")):
            root = Path(top.origin).parent
            root = root.parent if top.submodule_search_locations else root
    added = ""
    installed = {sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib")}
    if root is not None and str(root) not in installed:
        added = f"sys.path.append({json.dumps(str(root))})\n"
    loading = f'{added}source = importlib.import_module("{dotted}")\n'
    return Origin(told, loading, _executed(loading, told), attribute)


def _executed(loading: str, told: str) -> ModuleType:
    names: dict[str, Any] = {"importlib": importlib, "sys": sys}
    try:
        exec(loading, names)
    except Exception as error:
        raise UsageError(f"{told} cannot be imported: {type(error).__name__}: {error}") from error
    module = names["source"]
    assert isinstance(module, ModuleType)
    return module


def parameters_of(function: Callable[..., Any]) -> dict[str, inspect.Parameter] | None:
    """The parameters of a function, a method's own object apart; none where Python cannot say."""
    try:
        found = dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return None
    found.pop("self", None)
    return found

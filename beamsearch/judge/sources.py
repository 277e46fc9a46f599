"""Kernel sources as files that candidates' processes import."""

from __future__ import annotations

import ast
import hashlib
import threading
from collections.abc import Mapping
from pathlib import Path

from beamsearch.errors import KernelError
from beamsearch.executor.jobs import Subject
from beamsearch.judge.names import Names


def source_of(subject: Subject) -> str:
    """The source of a kernel subject. Raises KernelError for another."""
    if subject.kind != "kernel" or subject.source is None:
        raise KernelError(f"{subject.name} is no kernel with a source")
    return subject.source


def source_key(source: str) -> str:
    """Sixteen hex digits of a source."""
    return hashlib.sha256(source.encode()).hexdigest()[:16]


def write_source(scratch: Path, source: str) -> str:
    """Path of a file with this source, the same whenever the source is."""
    folder = scratch / "sources" / source_key(source)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "kernel.py"
    if not path.exists():
        draft = folder / f"{threading.get_ident()}.draft"
        draft.write_text(source)
        draft.replace(path)
    return str(path)


def write_sources(scratch: Path, key: str, sources: Mapping[str, str]) -> dict[str, str]:
    """Name -> path of a file with its source, all in the folder of that key."""
    folder = scratch / "sources" / key
    folder.mkdir(parents=True, exist_ok=True)
    paths = {}
    for number, (name, source) in enumerate(sources.items()):
        path = folder / f"form_{number}.py"
        path.write_text(source)
        paths[name] = str(path)
    return paths


def triton_kernels(source: str) -> set[str]:
    """Names of the functions that the source hands to Triton: decorated, or by a call of `jit`,
    under whatever name that was imported."""
    found = set()
    tree = ast.parse(source)
    names = Names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            if any(_compiles(decorator, names) for decorator in node.decorator_list):
                found.add(node.name)
        elif isinstance(node, ast.Call) and _compiles(node.func, names):
            found |= {argument.id for argument in node.args if isinstance(argument, ast.Name)}
    return found


def _compiles(node: ast.expr, names: Names) -> bool:
    """Whether this is Triton's `jit` or its class, or a call of them, as in `jit(repr=name)(f)`."""
    while isinstance(node, ast.Call):
        node = node.func
    path = names.path(node) or ""
    known = path.startswith("triton.") and path.endswith((".jit", ".JITFunction"))
    return known or ast.unparse(node).endswith("jit")

"""Which library names a source uses, as far as its text says for certain."""

from __future__ import annotations

import ast
import builtins
from collections import Counter
from collections.abc import Iterator


class Names:
    """Dotted paths of a source's expressions.

    A local name stands for a path where exactly one import or assignment in the whole source binds
    it; a name that is bound twice, or is a parameter somewhere, stands for nothing known.
    """

    def __init__(self, tree: ast.Module) -> None:
        self._bound = Counter(_bound_names(tree))
        imported: dict[str, set[str]] = {}
        for name, path in _imported(tree):
            imported.setdefault(name, set()).add(path)
        self._paths = {
            name: paths.pop()
            for name, paths in imported.items()
            if len(paths) == 1 and not self._bound[name]
        }
        # `backend = torch` is another name for torch; twice, for a name of a name.
        for node in [*ast.walk(tree), *ast.walk(tree)]:
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                name, found = node.targets[0].id, self.path(node.value)
                if found and self._bound[name] == 1:
                    self._paths[name] = found

    def path(self, node: ast.AST) -> str | None:
        """The dotted path that an expression names, such as `torch.nn.functional.linear`."""
        found = None
        if isinstance(node, ast.Name):
            found = self._paths.get(node.id)
            if found is None and hasattr(builtins, node.id) and not self._bound[node.id]:
                found = f"builtins.{node.id}"
        elif isinstance(node, ast.Attribute):
            found = self._member(node.value, node.attr)
        elif isinstance(node, ast.Subscript):
            table = self._namespace(node.value)
            found = self._member(table, text_of(node.slice)) if table is not None else None
        elif isinstance(node, ast.Call):
            called = self.path(node.func)
            if called == "builtins.getattr" and len(node.args) >= 2:
                found = self._member(node.args[0], text_of(node.args[1]))
            elif called in IMPORTERS and node.args:
                found = text_of(node.args[0])
        return found

    def _member(self, owner: ast.AST, name: str | None) -> str | None:
        path = self.path(owner)
        return f"{path}.{name}" if path and name else None

    def _namespace(self, node: ast.AST) -> ast.AST | None:
        """The X of `vars(X)` and `X.__dict__`."""
        if isinstance(node, ast.Attribute) and node.attr == "__dict__":
            return node.value
        if isinstance(node, ast.Call) and self.path(node.func) == "builtins.vars" and node.args:
            return node.args[0]
        return None

    def changed(self, target: ast.AST) -> str | None:
        """The library thing that assigning to or deleting this target changes."""
        if isinstance(target, ast.Attribute):
            return self.path(target)
        if isinstance(target, ast.Subscript) and self._namespace(target.value) is not None:
            return self.path(self._namespace(target.value) or target)
        return None


IMPORTERS = ("importlib.import_module", "builtins.__import__")


def text_of(node: ast.AST) -> str | None:
    """A string that the source holds, put together from constants or not; else none."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = text_of(node.left), text_of(node.right)
        return left + right if left is not None and right is not None else None
    if isinstance(node, ast.JoinedStr):
        return _joined([v.value if isinstance(v, ast.FormattedValue) else v for v in node.values])
    join = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    if join and isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        between = text_of(node.func.value)
        items = node.args[0] if node.args else None
        if node.func.attr == "join" and between is not None and isinstance(items, ast.List):
            return _joined(items.elts, between)
    return None


def _joined(parts: list[ast.expr], between: str = "") -> str | None:
    texts = [text_of(part) for part in parts]
    return between.join(t for t in texts if t is not None) if None not in texts else None


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Local names of imports, with what they stand for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                path = alias.name if alias.asname else alias.name.partition(".")[0]
                yield alias.asname or path, path
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                path = f"{node.module}.{alias.name}" if node.module else alias.name
                yield alias.asname or alias.name, path


def _bound_names(tree: ast.Module) -> Iterator[str]:
    """Every name that something other than an import binds, as often as it does."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(
            node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.ExceptHandler
        ):
            yield node.name or ""


def is_triton_kernel(function: ast.FunctionDef, names: Names) -> bool:
    """Whether a function is decorated to be compiled by Triton."""
    paths = [
        names.path(d.func if isinstance(d, ast.Call) else d) or "" for d in function.decorator_list
    ]
    return any(is_jit(path) for path in paths)


def is_jit(path: str) -> bool:
    """Whether a path is Triton's `jit`, or Gluon's."""
    return path.startswith("triton.") and path.endswith(".jit")


UNTAINTING = {
    *("shape", "device", "dtype", "ndim", "is_cuda", "itemsize", "size", "stride", "dim", "numel"),
    *("data_ptr", "element_size", "is_contiguous", "get_device", "new_empty", "new_zeros"),
    *("new_full", "new_ones", "new_tensor", "empty_like", "zeros_like", "ones_like", "full_like"),
    *("empty", "zeros", "ones", "full", "arange", "tensor", "empty_strided", "len"),
}
"""What asks a tensor for its form, or makes a new one: the result holds none of its values."""


def values_in(node: ast.AST) -> Iterator[str]:
    """Names whose values an expression depends on, their forms aside."""
    if isinstance(node, ast.Attribute) and node.attr in UNTAINTING:
        return
    if isinstance(node, ast.Call):
        called = node.func
        name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
        if name in UNTAINTING:
            return
    if isinstance(node, ast.Name):
        yield node.id
    for child in ast.iter_child_nodes(node):
        yield from values_in(child)


def input_names(function: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """A function's parameters, and what its assignments compute from their values."""
    spec = function.args
    every = [*spec.posonlyargs, *spec.args, *spec.kwonlyargs, spec.vararg, spec.kwarg]
    found = {arg.arg for arg in every if arg is not None} - {"self", "cls"}
    assignments = [n for n in ast.walk(function) if isinstance(n, ast.Assign)]
    for _ in range(3):  # values pass through a few names at most
        for node in assignments:
            if found & set(values_in(node.value)):
                targets = [n for target in node.targets for n in ast.walk(target)]
                found |= {n.id for n in targets if isinstance(n, ast.Name)}
    return found

"""The module that the compiler wrote, read: its kernels, and the call that launches them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass

from kernel_profiling.syntax import parse

GRIDS = {
    "Grid1D": (("xnumel", "XBLOCK"),),
    "Grid2D": (("xnumel", "XBLOCK"), ("ynumel", "YBLOCK")),
    "Grid3D": (("xnumel", "XBLOCK"), ("ynumel", "YBLOCK"), ("znumel", "ZBLOCK")),
    "BatchMatmulGrid3D": (("znumel", "ZBLOCK"), ("ynumel", "YBLOCK"), ("xnumel", "XBLOCK")),
    "Grid2DWithYZOverflow": (("xnumel", "XBLOCK"), ("ynumel", "YBLOCK")),
}
"""Kind of grid -> for each of its axes, the size that is divided and the block it is divided by."""
MOST_Y = 65535
"""Programs of a grid's second axis. More are spread over the third, which is not converted."""
FIXED = "FixedGrid"
"""The kind of grid whose three sizes are the last arguments of the launch."""
LIBRARIES = ("extern_kernels", "aten", "torch.ops", "inductor_ops", "_quantized")
KIND = re.compile(r"triton_[a-z]+_(?=fused)")


class NotTriton(Exception):
    """The compiled code is no plain sequence of Triton launches; the message says why."""


@dataclass(frozen=True)
class Kernel:
    """A kernel of the module."""

    name: str
    """As the module calls it."""
    function: ast.FunctionDef
    source: str
    """The text that `function` and `helpers` were parsed from."""
    helpers: list[ast.FunctionDef]
    grid: str
    """The kind of its grid."""
    sizes: dict[str, int]
    """Parameters that its body sets to a constant: what they are called with does not matter."""

    @property
    def short(self) -> str:
        """Its name without what says how the compiler schedules it."""
        return KIND.sub("", self.name)

    @property
    def parameters(self) -> list[str]:
        """What a launch passes by position, in order."""
        return [a.arg for a in self.function.args.args if a.annotation is None]

    @property
    def blocks(self) -> list[str]:
        """Block sizes, passed by name."""
        return [a.arg for a in self.function.args.args if a.annotation is not None]


def read(code: str) -> tuple[dict[str, Kernel], list[ast.stmt]]:
    """The kernels of a module, and the statements of its call, those under its device guard too.

    Raises NotTriton.
    """
    tree = parse(code)
    kernels = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            maker = ast.unparse(node.value.func)
            name = ast.unparse(node.targets[0])
            if maker == "async_compile.triton":
                kernels[name] = _kernel(name, node.value)
            elif maker.startswith("async_compile."):
                raise NotTriton(f"it writes {name} in another language ({maker})")
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n.name == "call"]
    if len(calls) != 1:
        raise NotTriton("it has no single call")
    body = list(_unguarded(calls[0].body))
    library = sorted({operation for node in body for operation in _library_calls(node)})
    if library:
        raise NotTriton(f"it calls the library for {', '.join(library)}")
    if not kernels:
        raise NotTriton("it launches no kernel")
    return kernels, body


def _unguarded(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        if isinstance(node, ast.With):
            yield from _unguarded(node.body)
        else:
            yield node


def _library_calls(statement: ast.stmt) -> Iterator[str]:
    """Operations of PyTorch that a statement calls."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Call):
            path = ast.unparse(node.func)
            if path.startswith(tuple(f"{library}." for library in LIBRARIES)):
                yield path.removesuffix(".default").rpartition(".")[2]


def _kernel(name: str, call: ast.Call) -> Kernel:
    source = ast.literal_eval(call.args[1])
    functions = [node for node in parse(source).body if isinstance(node, ast.FunctionDef)]
    if not functions or functions[-1].name != name:
        raise NotTriton(f"{name} is not written as a function of that name")
    *helpers, function = functions
    grid = _grid_type(function)
    if grid != FIXED and grid not in GRIDS:
        raise NotTriton(f"{name} is launched on a {grid}, which no plain launch has")
    names = {a.arg for a in function.args.args}
    sizes = {
        node.targets[0].id: node.value.value
        for node in function.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, int)
        and node.targets[0].id in names
    }
    return Kernel(name, function, source, helpers, grid, sizes)


def _grid_type(function: ast.FunctionDef) -> str:
    """From the dictionaries in a kernel's decorators."""
    found = "None"
    for node in (node for decorator in function.decorator_list for node in ast.walk(decorator)):
        pairs = zip(node.keys, node.values, strict=True) if isinstance(node, ast.Dict) else ()
        for key, value in pairs:
            named = isinstance(key, ast.Constant) and key.value == "grid_type"
            if named and isinstance(value, ast.Constant):
                found = str(value.value)
    return found

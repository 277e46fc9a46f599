"""The order in which programs take their tiles: in groups of rows, or several tiles a program."""

from __future__ import annotations

import ast
from collections.abc import Callable

from beamsearch.proposer.playbook.rewrites.source import (
    Launch,
    NotApplicable,
    Rewrite,
    calls,
    fresh,
    is_call,
    on_kernel,
    parse,
    replace,
    statements,
)
from kernel_profiling.profile import FindingKind

GROUPS = (8, 4, 16)
"""Rows of tiles walked together."""
RESIDENT = (1, 2, 4)
"""Programs a multiprocessor of a persistent kernel."""
SMS = "torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count"


def _grouped(launch: Launch, rows: int) -> str:
    """Walk a grid of two axes in groups of so many rows of the second, down each column in turn."""
    kernel, ids = launch.kernel, _ids(launch.kernel)
    if len(launch.grid_axes()) != 2 or {_axis(node) for node in ids} != {0, 1}:
        raise NotApplicable("no grid of two axes")
    if not calls(kernel, "dot", "dot_scaled"):
        raise NotApplicable("no product, whose tiles share rows and columns")
    fast, slow = fresh(kernel, "column"), fresh(kernel, "row")

    def grouped(node: ast.AST) -> ast.expr | None:
        return parse((fast, slow)[_axis(node) or 0]) if is_call(node, "program_id") else None

    sizes = "tl.num_programs(1), tl.num_programs(0)"
    order = f"tl.swizzle2d(tl.program_id(1), tl.program_id(0), {sizes}, {rows})"
    _put_ahead(kernel, f"{slow}, {fast} = {order}", grouped)
    return f"programs in groups of {rows} rows of tiles"


def _persistent(launch: Launch, resident: int) -> str:
    """So many programs a multiprocessor, each of which loops over its share of the tiles."""
    kernel, axes = launch.kernel, launch.grid_axes()
    if any(isinstance(node, ast.Return) for node in ast.walk(kernel)) or not _ids(kernel):
        raise NotApplicable("it ends early, or its programs are all alike")
    tiles = [launch.add_constexpr(f"TILES_{n}", _plain(launch, a)) for n, a in enumerate(axes)]
    tile = fresh(kernel, "tile")
    digits = []
    for axis, count in enumerate(tiles):
        below = f" // ({' * '.join(tiles[:axis])})" if axis else ""
        digits.append(f"({tile}{below} % {count})")

    def digit(node: ast.AST) -> ast.expr | None:
        return parse(digits[_axis(node) or 0]) if is_call(node, "program_id") else None

    steps = f"tl.program_id(0), {' * '.join(tiles)}, tl.num_programs(0)"
    loop = _put_ahead(kernel, f"for {tile} in range({steps}):\n    pass", digit)
    assert isinstance(loop, ast.For)
    place = kernel.body.index(loop)
    loop.body, kernel.body[place:] = kernel.body[place + 1 :], [loop]
    total = " * ".join(f"({_plain(launch, axis)})" for axis in axes)
    launch.set_grid([parse(f"min({total}, {resident} * {SMS})")])
    return f"a persistent loop over tiles, {resident} program{'s' * (resident > 1)} an SM"


def _ids(kernel: ast.FunctionDef) -> list[ast.Call]:
    """Every `tl.program_id`. Raises NotApplicable where an axis is computed, or the kernel has an
    order of its own."""
    ids = calls(kernel, "program_id")
    if any(_axis(node) is None for node in ids) or calls(kernel, "num_programs", "swizzle2d"):
        raise NotApplicable("its programs know how many they are, or their axis is computed")
    return ids


def _put_ahead(
    kernel: ast.FunctionDef, text: str, make: Callable[[ast.AST], ast.expr | None]
) -> ast.stmt:
    """Nodes of a kernel's body replaced, and a statement put before them, which is returned."""
    head = 1 if ast.get_docstring(kernel, clean=False) is not None else 0
    body = [replace(statement, make) for statement in kernel.body[head:]]
    (first,) = statements(text)
    kernel.body[head:] = [first, *body]
    return first


def _axis(node: ast.AST) -> int | None:
    """The axis of a `tl.program_id`, where it is written as a number."""
    match node:
        case ast.Call(args=[ast.Constant(int(axis))], keywords=[]) if is_call(node, "program_id"):
            return axis
        case ast.Call(args=[], keywords=[ast.keyword("axis", ast.Constant(int(axis)))]) if is_call(
            node, "program_id"
        ):
            return axis
    return None


def _plain(launch: Launch, axis: ast.expr) -> str:
    """An axis of the grid without `META`, which only a grid has. Raises NotApplicable."""

    def passed(node: ast.AST) -> ast.expr | None:
        match node:
            case ast.Subscript(ast.Name("META"), ast.Constant(str(name))):
                value = launch.argument(name)
                if value is None:
                    raise NotApplicable(f"{name} is not passed plainly")
                return value
        return None

    return ast.unparse(replace(parse(ast.unparse(axis)), passed))


GROUPED = Rewrite(
    "grouped",
    (FindingKind.EXCESS_TRAFFIC, FindingKind.LATENCY),
    on_kernel(_grouped, [(rows,) for rows in GROUPS]),
)
PERSISTENT = Rewrite(
    "persistent",
    (FindingKind.TAIL, FindingKind.LAUNCH_BOUND, FindingKind.LATENCY),
    on_kernel(_persistent, [(resident,) for resident in RESIDENT]),
)

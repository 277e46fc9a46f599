"""The order in which programs take their tiles: in groups of rows."""

from __future__ import annotations

import ast

from beamsearch.proposer.playbook.rewrites.digits import program_axis
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


def _grouped(launch: Launch, rows: int) -> str:
    """Walk a grid of two axes in groups of so many rows of the second, down each column in turn."""
    kernel, ids = launch.kernel, _ids(launch.kernel)
    if len(launch.grid_axes()) != 2 or {program_axis(node) for node in ids} != {0, 1}:
        raise NotApplicable("no grid of two axes")
    if not calls(kernel, "dot", "dot_scaled"):
        raise NotApplicable("no product, whose tiles share rows and columns")
    fast, slow = fresh(kernel, "column"), fresh(kernel, "row")

    def grouped(node: ast.AST) -> ast.expr | None:
        return parse((fast, slow)[program_axis(node) or 0]) if is_call(node, "program_id") else None

    sizes = "tl.num_programs(1), tl.num_programs(0)"
    order = f"tl.swizzle2d(tl.program_id(1), tl.program_id(0), {sizes}, {rows})"
    head = 1 if ast.get_docstring(kernel, clean=False) is not None else 0
    body = [replace(statement, grouped) for statement in kernel.body[head:]]
    kernel.body[head:] = [*statements(f"{slow}, {fast} = {order}"), *body]
    return f"programs in groups of {rows} rows of tiles"


def _ids(kernel: ast.FunctionDef) -> list[ast.Call]:
    """Every `tl.program_id`. Raises NotApplicable where an axis is computed, or the kernel has an
    order of its own."""
    ids = calls(kernel, "program_id")
    if any(program_axis(node) is None for node in ids) or calls(
        kernel, "num_programs", "swizzle2d"
    ):
        raise NotApplicable("its programs know how many they are, or their axis is computed")
    return ids


GROUPED = Rewrite(
    "grouped",
    (FindingKind.EXCESS_TRAFFIC, FindingKind.LATENCY),
    on_kernel(_grouped, [(rows,) for rows in GROUPS]),
)

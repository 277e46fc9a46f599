"""Alignment and contiguity of lane offsets are stated, so that accesses can be wide."""

from __future__ import annotations

import ast

from beamsearch.proposer.playbook.rewrites.hints import Hints
from beamsearch.proposer.playbook.rewrites.interface import Result, Rewrite, attempt
from beamsearch.proposer.playbook.rewrites.source import (
    Module,
    NotApplicable,
    constexprs,
    is_call,
    parse,
)
from kernel_profiling.profile import FindingKind


def apply(source: str, hints: Hints) -> list[Result]:
    """Every `program * BLOCK + tl.arange(0, BLOCK)` at once."""
    return attempt(source, _all)


def _all(module: Module) -> str:
    done = []
    for kernel in module.kernels.values():
        constant = constexprs(kernel)
        for node in ast.walk(kernel):
            if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
                continue
            block = _block(node.value)
            if block in constant:
                text = ast.unparse(node.value)
                node.value = parse(f"tl.max_contiguous(tl.multiple_of({text}, {block}), {block})")
                done.append(node.targets[0].id)
    if not done:
        raise NotApplicable("no block of lanes that starts at a multiple of its length")
    return f"alignment of {', '.join(done)} stated"


def _block(value: ast.expr) -> str | None:
    """BLOCK of `something * BLOCK + tl.arange(0, BLOCK)`, which starts at a multiple of it."""
    if not (isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add)):
        return None
    lanes, start = value.right, value.left
    if not is_call(lanes, "arange") or not isinstance(lanes, ast.Call):
        return None
    block = ast.unparse(lanes.args[1])
    if not (isinstance(start, ast.BinOp) and isinstance(start.op, ast.Mult)):
        return None
    if block not in (ast.unparse(start.left), ast.unparse(start.right)):
        return None
    return block if ast.unparse(lanes.args[0]) == "0" else None


REWRITE = Rewrite("alignment", (FindingKind.NARROW_ACCESS, FindingKind.UNCOALESCED), apply)

"""Addresses are summed scalars first, so that lanes add one 32-bit offset to a common base."""

from __future__ import annotations

import ast

from beamsearch.proposer.playbook.rewrites.flow import Flow, product, summands
from beamsearch.proposer.playbook.rewrites.hints import Hints
from beamsearch.proposer.playbook.rewrites.interface import Result, Rewrite, attempt
from beamsearch.proposer.playbook.rewrites.source import Module, NotApplicable, calls, parse
from kernel_profiling.profile import FindingKind

LARGEST_OFFSET = 2**31
"""Elements up to which every offset fits 32 bits, so that parts of a sum may be added in any order
and width."""


def apply(source: str, hints: Hints) -> list[Result]:
    """Every load and store at once."""
    if not 1 < hints.total_elements() < LARGEST_OFFSET:
        return []
    return attempt(source, _all)


def _all(module: Module) -> str:
    done = 0
    for kernel in module.kernels.values():
        flow = Flow(kernel)
        for call in calls(kernel, "load", "store"):
            if not flow.is_vector(call.args[0]):
                continue
            new = _reordered(call.args[0], flow)
            if new is not None and ast.dump(new) != ast.dump(call.args[0]):
                call.args[0] = new
                done += 1
    if not done:
        raise NotApplicable("addresses are in order")
    return "scalar parts of addresses summed first"


def _reordered(address: ast.expr, flow: Flow) -> ast.expr | None:
    """pointer + scalars + vectors, products over sums multiplied out; None where it stays."""
    parts = summands(address)
    if not isinstance(parts[0], ast.Name) or parts[0].id not in flow.parameters:
        return None
    terms: list[list[ast.expr]] = []
    for part in parts[1:]:
        inlined = flow.inline(part, keep=_keep(flow))
        terms += _terms(inlined, flow)
    scalars = [_product(t) for t in terms if not any(map(flow.is_vector, t))]
    vectors = [_product(t) for t in terms if any(map(flow.is_vector, t))]
    if not scalars or not vectors:
        return None
    base = f"{parts[0].id} + ({' + '.join(scalars)})"
    return parse(f"{base} + ({' + '.join(vectors)})")


def _keep(flow: Flow) -> set[str]:
    """Names not to look into: those that are no sums or products, and those that are all vector."""
    kept = set()
    for name, value in flow.definitions.items():
        mixed = flow.is_vector(value) and any(
            isinstance(n, ast.Name) and n.id not in flow.vectors for n in ast.walk(value)
        )
        linear = isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add | ast.Mult)
        if not (linear and mixed) or calls(value, "program_id", "arange", "load"):
            kept.add(name)
    return kept


def _terms(node: ast.expr, flow: Flow) -> list[list[ast.expr]]:
    """A sum of products, where scalars and vectors mix; factors of each term."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [*_terms(node.left, flow), *_terms(node.right, flow)]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult) and flow.is_vector(node):
        left, right = _terms(node.left, flow), _terms(node.right, flow)
        return [[*a, *b] for a in left for b in right]
    return [[node]]


def _product(parts: list[ast.expr]) -> str:
    return product([ast.unparse(p) for p in parts])


REWRITE = Rewrite("addresses", (FindingKind.INTEGER_OVERHEAD, FindingKind.ISSUE_BOUND), apply)

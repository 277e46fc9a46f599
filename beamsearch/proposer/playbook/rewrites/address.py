"""Addresses are summed scalars first, so that lanes add one 32-bit offset to a common base."""

from __future__ import annotations

import ast
import itertools

from beamsearch.proposer.playbook.rewrites.flow import Flow, parts, product
from beamsearch.proposer.playbook.rewrites.source import (
    Module,
    NotApplicable,
    Rewrite,
    calls,
    names_in,
    on_module,
    parse,
)
from kernel_profiling.profile import FindingKind

LARGEST_OFFSET = 2**31
"""Elements up to which every offset fits 32 bits, so that parts of a sum may be added in any order
and width."""


def _reorder(module: Module) -> str:
    """Every load and store at once."""
    if not 1 < module.hints.total_elements() < LARGEST_OFFSET:
        raise NotApplicable("offsets may not fit 32 bits")
    before = ast.dump(module.tree)
    for kernel in module.kernels.values():
        flow = Flow(kernel)
        for call in calls(kernel, "load", "store"):
            if flow.is_vector(call.args[0]):
                call.args[0] = _reordered(call.args[0], flow)
    if ast.dump(module.tree) == before:
        raise NotApplicable("addresses are in order")
    return "scalar parts of addresses summed first"


def _reordered(address: ast.expr, flow: Flow) -> ast.expr:
    """pointer + scalars + vectors, products over sums multiplied out; or what it was."""
    pointer, *offsets = parts(address, ast.Add)
    if not isinstance(pointer, ast.Name) or pointer.id not in flow.parameters:
        return address
    opaque = {name for name, value in flow.definitions.items() if not _is_mixed(value, flow)}
    terms = [term for part in offsets for term in _terms(flow.inline(part, opaque), flow)]
    sums: dict[bool, list[str]] = {False: [], True: []}
    for term in terms:
        sums[any(map(flow.is_vector, term))].append(product([ast.unparse(p) for p in term]))
    if not sums[False] or not sums[True]:
        return address
    return parse(f"{pointer.id} + ({' + '.join(sums[False])}) + ({' + '.join(sums[True])})")


def _is_mixed(value: ast.expr, flow: Flow) -> bool:
    """Whether a value is a sum or product of scalars and vectors."""
    match value:
        case ast.BinOp(_, ast.Add() | ast.Mult()) if flow.is_vector(value):
            scalars = names_in(value) - flow.vectors
            return bool(scalars) and not calls(value, "program_id", "arange", "load")
    return False


def _terms(node: ast.expr, flow: Flow) -> list[list[ast.expr]]:
    """A sum of products, where scalars and vectors mix; factors of each term."""
    match node:
        case ast.BinOp(left, ast.Add(), right):
            return [*_terms(left, flow), *_terms(right, flow)]
        case ast.BinOp(left, ast.Mult(), right) if flow.is_vector(node):
            both = itertools.product(_terms(left, flow), _terms(right, flow))
            return [[*a, *b] for a, b in both]
    return [[node]]


REWRITE = Rewrite(
    "addresses",
    (FindingKind.INTEGER_OVERHEAD, FindingKind.ISSUE_BOUND),
    on_module(_reorder),
)

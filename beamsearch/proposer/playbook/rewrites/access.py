"""How memory is read and written: layout, order of addresses, cache hints."""

from __future__ import annotations

import ast
import itertools

from beamsearch.proposer.playbook.rewrites.digits import without
from beamsearch.proposer.playbook.rewrites.flow import Flow, factors, parts, product
from beamsearch.proposer.playbook.rewrites.hints import Shape
from beamsearch.proposer.playbook.rewrites.source import (
    Launch,
    Module,
    NotApplicable,
    Rewrite,
    calls,
    constexprs,
    fresh,
    keyword,
    names_in,
    on_kernel,
    on_module,
    parse,
    statements,
)
from beamsearch.proposer.playbook.rewrites.unroll import range_bound
from kernel_profiling.profile import FindingKind

LARGEST = 2**20
"""Elements of an operand worth copying every call: 2 MB, a few microseconds."""
LARGEST_OFFSET = 2**31
"""Elements up to which every offset fits 32 bits, so that parts of a sum may be added in any order
and width."""


def _repack(launch: Launch) -> str:
    """A small operand is laid out anew on the host, so that its reads are contiguous.

    Fits reads whose vector part is a multiple of one product, `(…) * S + t`, with a scalar t
    counted by loops over exactly S steps: the operand's (n, S) matrix is transposed once a call.
    """
    kernel, body = launch.kernel, launch.function.body
    flow = Flow(kernel)
    accesses = calls(kernel, "load", "store")
    for call in calls(kernel, "load"):
        pointer, *offsets = parts(flow.inline(call.args[0], keep=flow.vectors), ast.Add)
        if not isinstance(pointer, ast.Name) or pointer.id not in flow.parameters:
            continue
        if sum(pointer.id in names_in(n) for n in accesses) != 1:
            continue
        operand = launch.argument(pointer.id)
        if not isinstance(operand, ast.Name):
            continue
        known = launch.module.hints.arguments.get(operand.id)
        if not isinstance(known, Shape) or known.elements > LARGEST:
            continue
        scalars = [ast.unparse(p) for p in offsets if not flow.is_vector(p)]
        step = _counted(kernel, scalars)
        vectors = [without(factors(p), step) for p in offsets if flow.is_vector(p)]
        if not step or not vectors or None in vectors:
            continue
        host_step = launch.on_host(product(step))
        packed = fresh(launch.function, f"{operand.id}_packed")
        at = [i for i, s in enumerate(body) if any(n is launch.call for n in ast.walk(s))]
        if not at:
            continue
        body[at[0] : at[0]] = statements(
            f"{packed} = {operand.id}.reshape(-1, {host_step}).t().contiguous()"
        )
        length = launch.add_constexpr("STEPS", f"{operand.id}.numel() // ({host_step})")
        launch.set_argument(pointer.id, packed)
        lanes = " + ".join(product(part) for part in vectors if part is not None)
        call.args[0] = parse(f"{pointer.id} + ({' + '.join(scalars)}) * {length} + ({lanes})")
        return f"{operand.id} laid out anew for contiguous reads in {kernel.name}"
    raise NotApplicable("no read with a common stride")


def _counted(kernel: ast.FunctionDef, scalars: list[str]) -> list[str]:
    """Factors of S where the scalars count 0 … S-1 by nested loops, else nothing."""
    bounds: dict[str, str] = {}
    for loop in [n for n in ast.walk(kernel) if isinstance(n, ast.For)]:
        match loop.target, range_bound(loop):
            case ast.Name(name), ast.Name(bound) if bounds.setdefault(name, bound) != bound:
                return []
    steps: list[str] = []
    node = parse(" + ".join(scalars) or "None")
    while True:
        match node:  # ((a * n) + b) with b counted to n
            case ast.BinOp(ast.BinOp(high, ast.Mult(), by), ast.Add(), ast.Name(low)):
                if bounds.get(low) != ast.unparse(by):
                    return []
                steps.append(bounds[low])
                node = high
            case ast.Name(name) if name in bounds:
                steps.append(bounds[name])
                return sorted(steps) if set(steps) <= constexprs(kernel) else []
            case _:
                return []


REPACK = Rewrite(
    "repack",
    (FindingKind.UNCOALESCED, FindingKind.EXCESS_TRAFFIC, FindingKind.LATENCY),
    on_kernel(_repack),
)


def _reorder(module: Module) -> str:
    """Addresses are summed scalars first, so that lanes add one 32-bit offset to a common base."""
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


ADDRESSES = Rewrite(
    "addresses",
    (FindingKind.INTEGER_OVERHEAD, FindingKind.ISSUE_BOUND),
    on_module(_reorder),
)


def _stream(module: Module) -> str:
    """Vector stores stream past the caches: the one cache hint that gained in the recorded runs."""
    done = 0
    for kernel in module.kernels.values():
        flow = Flow(kernel)
        if "make_block_ptr" in ast.unparse(kernel):
            continue
        for call in calls(kernel, "store"):
            hinted = any(keyword(call, k) for k in ("cache_modifier", "eviction_policy"))
            if flow.is_vector(call.args[0]) and not hinted:
                streamed = ast.Constant(value=".cs")
                call.keywords.append(ast.keyword(arg="cache_modifier", value=streamed))
                done += 1
    if not done:
        raise NotApplicable("no store without a hint")
    return "stores streamed past the caches (.cs)"


CACHE_HINTS = Rewrite(
    "cache hints", (FindingKind.EXCESS_TRAFFIC, FindingKind.LATENCY), on_module(_stream)
)

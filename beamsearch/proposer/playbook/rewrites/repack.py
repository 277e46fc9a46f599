"""A small operand is laid out anew on the host, so that its reads are contiguous.

Fits reads whose vector part is a multiple of one product, `(…) * S + t`, with a scalar t counted by
loops over exactly S steps: the operand's (n, S) matrix is transposed once a call.
"""

from __future__ import annotations

import ast

from beamsearch.proposer.playbook.rewrites.digits import without
from beamsearch.proposer.playbook.rewrites.flow import Flow, factors, parts, product
from beamsearch.proposer.playbook.rewrites.hints import Shape
from beamsearch.proposer.playbook.rewrites.source import (
    Launch,
    NotApplicable,
    Rewrite,
    calls,
    constexprs,
    fresh,
    names_in,
    on_kernel,
    parse,
    statements,
)
from beamsearch.proposer.playbook.rewrites.unroll import range_bound
from kernel_profiling.profile import FindingKind

LARGEST = 2**20
"""Elements of an operand worth copying every call: 2 MB, a few microseconds."""


def _repack(launch: Launch) -> str:
    """The first operand that fits."""
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


REWRITE = Rewrite(
    "repack",
    (FindingKind.UNCOALESCED, FindingKind.EXCESS_TRAFFIC, FindingKind.LATENCY),
    on_kernel(_repack),
)

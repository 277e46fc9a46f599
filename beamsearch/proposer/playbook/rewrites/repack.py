"""A small operand is laid out anew on the host, so that its reads are contiguous.

Fits reads whose vector part is a multiple of one product, `(…) * S + t`, with a scalar t counted by
loops over exactly S steps: the operand's (n, S) matrix is transposed once a call.
"""

from __future__ import annotations

import ast
from collections import Counter
from functools import partial

from beamsearch.proposer.playbook.rewrites.flow import Flow, factors, product, summands
from beamsearch.proposer.playbook.rewrites.hints import Hints, Shape
from beamsearch.proposer.playbook.rewrites.interface import Result, Rewrite, attempt_kernel
from beamsearch.proposer.playbook.rewrites.source import (
    Launch,
    Module,
    NotApplicable,
    argument,
    calls,
    constexprs,
    fresh,
    host_value,
    names_in,
    parse,
    set_argument,
    statements,
)
from beamsearch.proposer.playbook.rewrites.unroll import range_bound
from kernel_profiling.profile import FindingKind

LARGEST = 2**20
"""Elements of an operand worth copying every call: 2 MB, a few microseconds."""


def apply(source: str, hints: Hints) -> list[Result]:
    """The first operand that fits, of the first kernel that has one."""
    return attempt_kernel(source, partial(_repack, hints))


def _repack(hints: Hints, _: Module, kernel: ast.FunctionDef, launch: Launch) -> str:
    flow = Flow(kernel)
    for call in calls(kernel, "load"):
        parts = summands(flow.inline(call.args[0], keep=flow.vectors))
        pointer = parts[0]
        if not isinstance(pointer, ast.Name) or pointer.id not in flow.parameters:
            continue
        if sum(pointer.id in names_in(n) for n in calls(kernel, "load", "store")) != 1:
            continue
        step, place = _split(kernel, flow, parts[1:])
        if not step:
            continue
        operand = argument(kernel, launch, pointer.id)
        if not isinstance(operand, ast.Name) or not _small(operand.id, hints):
            continue
        host_step = ast.unparse(host_value(kernel, launch, parse(product(step))))
        rows = f"{operand.id}.numel() // ({host_step})"
        packed = fresh(launch.function, f"{operand.id}_packed")
        if not _insert_before(
            launch, f"{packed} = {operand.id}.reshape(-1, {host_step}).t().contiguous()"
        ):
            continue
        length = fresh(kernel, "STEPS")
        kernel.args.args.append(ast.arg(arg=length, annotation=parse("tl.constexpr")))
        if kernel.args.defaults:
            kernel.args.defaults.append(ast.Constant(value=1))
        launch.call.keywords.append(ast.keyword(arg=length, value=parse(rows)))
        set_argument(kernel, launch, pointer.id, ast.Name(id=packed, ctx=ast.Load()))
        vectors, scalars = place
        call.args[0] = parse(
            f"{pointer.id} + ({' + '.join(scalars)}) * {length} + ({' + '.join(vectors)})"
        )
        return f"{operand.id} laid out anew for contiguous reads in {kernel.name}"
    raise NotApplicable("no read with a common stride")


def _small(name: str, hints: Hints) -> bool:
    shape = hints.arguments.get(name)
    return isinstance(shape, Shape) and shape.elements <= LARGEST


def _split(
    kernel: ast.FunctionDef, flow: Flow, parts: list[ast.expr]
) -> tuple[list[str], tuple[list[str], list[str]]]:
    """The common factor of the vector summands, and both kinds of summand without it."""
    vectors = [p for p in parts if flow.is_vector(p)]
    scalars = [p for p in parts if not flow.is_vector(p)]
    nothing: tuple[list[str], tuple[list[str], list[str]]] = ([], ([], []))
    if not vectors or not scalars:
        return nothing
    steps = _counted(kernel, scalars)
    if not steps:
        return nothing
    left = []
    for part in vectors:
        own = Counter(factors(part))
        if Counter(steps) - own:
            return nothing
        rest = sorted((own - Counter(steps)).elements())
        left.append(product(rest))
    return steps, (left, [ast.unparse(s) for s in scalars])


def _counted(kernel: ast.FunctionDef, scalars: list[ast.expr]) -> list[str]:
    """Factors of S where the scalars count 0 … S-1 by nested loops, else nothing."""
    bounds: dict[str, str] = {}
    for loop in [n for n in ast.walk(kernel) if isinstance(n, ast.For)]:
        bound = range_bound(loop)
        if not isinstance(loop.target, ast.Name) or not isinstance(bound, ast.Name):
            continue
        if bounds.setdefault(loop.target.id, bound.id) != bound.id:
            return []
    steps: list[str] = []
    node = parse(" + ".join(ast.unparse(s) for s in scalars))
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        # ((a * n) + b) with b counted to n.
        low, high = node.right, node.left
        if not (isinstance(low, ast.Name) and low.id in bounds):
            return []
        if not (isinstance(high, ast.BinOp) and isinstance(high.op, ast.Mult)):
            return []
        if ast.unparse(high.right) != bounds[low.id]:
            return []
        steps.append(bounds[low.id])
        node = high.left
    if not (isinstance(node, ast.Name) and node.id in bounds):
        return []
    steps.append(bounds[node.id])
    return sorted(steps) if set(steps) <= constexprs(kernel) else []


def _insert_before(launch: Launch, text: str) -> bool:
    """Put a statement before the launch's own, at the top level of its function."""
    body = launch.function.body
    for i, statement in enumerate(body):
        if any(node is launch.call for node in ast.walk(statement)):
            body[i:i] = statements(text)
            return True
    return False


REWRITE = Rewrite(
    "repack", (FindingKind.UNCOALESCED, FindingKind.EXCESS_TRAFFIC, FindingKind.LATENCY), apply
)

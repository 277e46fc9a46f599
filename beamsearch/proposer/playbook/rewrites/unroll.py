"""Loops of known length are unrolled, so that their loads are in flight together."""

from __future__ import annotations

import ast

from beamsearch.proposer.playbook.rewrites.source import (
    Module,
    NotApplicable,
    Rewrite,
    calls,
    constexprs,
    is_call,
    names_in,
    on_module,
    parse,
)
from kernel_profiling.profile import FindingKind

SHORT = 16
"""Iterations up to which one loop is unrolled whole."""
MOST_COPIES = 128
"""Copies of an innermost body over all nested unrolled loops: beyond it the instruction cache and
the compiler suffer."""
MOST_WRITTEN_OUT = 192
"""Copies where equal loads among them are merged. Triton's coalescing takes time by the square of
what is written out: 216 copies of a pooling window's load compile for 5 s, 432 for 16 s."""
ASSUMED_LENGTH = 3
"""Of a loop counted by a parameter that was a constexpr from the start and whose value is not
known: window sizes are what people write so."""


def loop_length(loop: ast.For, kernel: ast.FunctionDef, values: dict[str, int]) -> int | None:
    """Iterations of `for _ in range(n)` with a constexpr n; None where it is not known."""
    match range_bound(loop):
        case ast.Constant(int(length)):
            return length
        case ast.Name(name) if name in constexprs(kernel):
            return values.get(name, ASSUMED_LENGTH)
    return None


def range_bound(loop: ast.For) -> ast.expr | None:
    """The n of `for _ in range(n)`, `tl.range(n)` or `tl.static_range(n)`."""
    match loop.iter:
        case ast.Call(ast.Name("range"), [bound]):
            return bound
        case ast.Call(_, [bound]) as call if is_call(call, "range", "static_range"):
            return bound
    return None


def is_static(loop: ast.For) -> bool:
    """Whether a loop is unrolled whole already."""
    return is_call(loop.iter, "static_range")


def make_static(loop: ast.For) -> None:
    """Unroll a loop whole."""
    assert isinstance(loop.iter, ast.Call)
    loop.iter = ast.Call(func=parse("tl.static_range"), args=loop.iter.args, keywords=[])


def _unroll(module: Module, inner_only: bool) -> str:
    done: list[str] = []
    for name, kernel in module.kernels.items():
        values = module.values(name)
        for loop in _innermost_first(kernel):
            length = loop_length(loop, kernel, values)
            if length is None or not 1 <= length <= SHORT or is_static(loop):
                continue
            inner = copies_of(loop.body, kernel, values)
            if inner * length > MOST_COPIES or calls(loop, "dot"):
                continue
            nodes = list(ast.walk(loop))
            if any(isinstance(n, ast.Return | ast.Break | ast.Continue) for n in nodes):
                continue
            runtime = any(isinstance(n, ast.For) and not is_static(n) for n in nodes[1:])
            if inner_only and (inner > 1 or runtime):
                continue
            make_static(loop)
            done += sorted(names_in(loop.target))
    if not done:
        raise NotApplicable("no short loop")
    return f"loops over {', '.join(done)} unrolled"


def copies_of(body: list[ast.stmt], kernel: ast.FunctionDef, values: dict[str, int]) -> int:
    """How often the innermost statements of a body stand there once unrolled."""
    most = 1
    for node in body:
        if isinstance(node, ast.For | ast.If):
            inner = copies_of(node.body, kernel, values)
            if isinstance(node, ast.For) and is_static(node):
                inner *= loop_length(node, kernel, values) or 1
            most = max(most, inner)
    return most


def _innermost_first(node: ast.AST) -> list[ast.For]:
    inner = [loop for child in ast.iter_child_nodes(node) for loop in _innermost_first(child)]
    return [*inner, node] if isinstance(node, ast.For) else inner


REWRITE = Rewrite(
    "unroll",
    (FindingKind.LATENCY, FindingKind.ISSUE_BOUND, FindingKind.INTEGER_OVERHEAD),
    on_module(_unroll, [(False,), (True,)]),
)

"""Loops of known length are unrolled, so that their loads are in flight together."""

from __future__ import annotations

import ast

from beamsearch.proposer.playbook.rewrites.hints import Hints
from beamsearch.proposer.playbook.rewrites.interface import Result, Rewrite, attempt
from beamsearch.proposer.playbook.rewrites.source import (
    Module,
    NotApplicable,
    calls,
    constexprs,
    is_call,
    names_in,
    parse,
)
from kernel_profiling.profile import FindingKind

SHORT = 16
"""Iterations up to which one loop is unrolled whole."""
MOST_COPIES = 128
"""Copies of an innermost body over all nested unrolled loops: beyond it the instruction cache and
the compiler suffer."""
ASSUMED_LENGTH = 3
"""Of a loop counted by a parameter that was a constexpr from the start and whose value is not
known: window sizes are what people write so."""


def apply(source: str, hints: Hints) -> list[Result]:
    """Short loops unrolled whole, all of them or only the innermost."""
    results = attempt(source, lambda module: _whole(module, hints, inner_only=False))
    return results + attempt(source, lambda module: _whole(module, hints, inner_only=True))


def loop_length(loop: ast.For, kernel: ast.FunctionDef, values: dict[str, int]) -> int | None:
    """Iterations of `for _ in range(n)` with a constexpr n; None where it is not known."""
    bound = range_bound(loop)
    if bound is None:
        return None
    if isinstance(bound, ast.Constant) and isinstance(bound.value, int):
        return bound.value
    if not isinstance(bound, ast.Name) or bound.id not in constexprs(kernel):
        return None
    return values.get(bound.id, ASSUMED_LENGTH)


def range_bound(loop: ast.For) -> ast.expr | None:
    """The n of `for _ in range(n)`, `tl.range(n)` or `tl.static_range(n)`."""
    call = loop.iter
    if not isinstance(call, ast.Call) or len(call.args) != 1:
        return None
    plain = isinstance(call.func, ast.Name) and call.func.id == "range"
    return call.args[0] if plain or is_call(call, "range", "static_range") else None


def is_static(loop: ast.For) -> bool:
    """Whether a loop is unrolled whole already."""
    return is_call(loop.iter, "static_range")


def make_static(loop: ast.For) -> None:
    """Unroll a loop whole."""
    assert isinstance(loop.iter, ast.Call)
    loop.iter = ast.Call(func=parse("tl.static_range"), args=loop.iter.args, keywords=[])


def _whole(module: Module, hints: Hints, *, inner_only: bool) -> str:
    done: list[str] = []
    for name, kernel in module.kernels.items():
        values = hints.launch_values(module, name)
        for loop in _innermost_first(kernel.body):
            length = loop_length(loop, kernel, values)
            if length is None or not 1 <= length <= SHORT or is_static(loop):
                continue
            inner = _copies(loop.body, kernel, values)
            if inner * length > MOST_COPIES or (inner_only and inner > 1):
                continue
            if any(isinstance(n, ast.Return | ast.Break | ast.Continue) for n in ast.walk(loop)):
                continue
            if calls(loop, "dot") or (_has_runtime_loop(loop.body) and inner_only):
                continue
            make_static(loop)
            done += sorted(names_in(loop.target))
    if not done:
        raise NotApplicable("no short loop")
    return f"loops over {', '.join(done)} unrolled"


def _has_runtime_loop(body: list[ast.stmt]) -> bool:
    return any(isinstance(n, ast.For) and not is_static(n) for s in body for n in ast.walk(s))


def _copies(body: list[ast.stmt], kernel: ast.FunctionDef, values: dict[str, int]) -> int:
    """How often the innermost statements of a body stand there once unrolled."""
    most = 1
    for node in body:
        if isinstance(node, ast.For):
            inner = _copies(node.body, kernel, values)
            length = loop_length(node, kernel, values) or 1
            most = max(most, inner * length if is_static(node) else inner)
        elif isinstance(node, ast.If):
            most = max(most, _copies(node.body, kernel, values))
    return most


def _innermost_first(body: list[ast.stmt]) -> list[ast.For]:
    found = []
    for node in body:
        for field in ("body", "orelse"):
            inner = getattr(node, field, None)
            if isinstance(inner, list):
                found += _innermost_first(inner)
        if isinstance(node, ast.For):
            found.append(node)
    return found


REWRITE = Rewrite(
    "unroll",
    (FindingKind.LATENCY, FindingKind.ISSUE_BOUND, FindingKind.INTEGER_OVERHEAD),
    apply,
)

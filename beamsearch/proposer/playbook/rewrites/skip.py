"""Loop iterations whose mask is false for a whole program are skipped: a step of `residues`."""

from __future__ import annotations

import ast
from collections.abc import Collection

from beamsearch.proposer.playbook.rewrites.flow import Flow, parts
from beamsearch.proposer.playbook.rewrites.source import (
    assigned_in,
    calls,
    is_call,
    is_store,
    keyword,
    names_in,
    parse,
    replace,
    uncast,
)


def branch_on_scalars(kernel: ast.FunctionDef) -> None:
    """Put loop bodies under the scalar parts of their masks."""
    _branch(kernel, kernel.body, set(), [])


def _branch(
    kernel: ast.FunctionDef, body: list[ast.stmt], outside: set[str], done: list[str]
) -> None:
    for node in list(body):
        if isinstance(node, ast.For):
            set_here = names_in(*kernel.body, context=ast.Store)
            before = set_here - names_in(node, context=ast.Store)
            _branch_loop(kernel, node, before | outside | names_in(node.target), done)
        elif isinstance(node, ast.If):
            _branch(kernel, node.body, outside, done)


def _branch_loop(
    kernel: ast.FunctionDef, loop: ast.For, available: set[str], done: list[str]
) -> None:
    flow = Flow(kernel)
    own = set(assigned_in(loop.body))
    known = available | flow.parameters | own
    terms = {
        text: term
        for text, term in _common_terms(loop, flow, known).items()
        if text not in done and flow.depends(term, names_in(loop.target) | own)
    }
    if terms:
        needed = flow.closure(names_in(*terms.values())) & own
        prelude = [
            s for s in loop.body if isinstance(s, ast.Assign) and names_in(s.targets[0]) & needed
        ]
        rest = [s for s in loop.body if s not in prelude]
        escaping = {n for n in names_in(*rest, context=ast.Store) if _escapes(kernel, rest, n)}
        if rest and not any(calls(s, "load") for s in prelude) and _Neutral(escaping).body(rest):
            condition = parse(" & ".join(f"({text})" for text in terms))
            for s in rest:
                replace(s, lambda node: _without(node, terms.keys()), inner_first=True)
            loop.body = [*prelude, ast.If(test=condition, body=rest, orelse=[])]
            return _branch(kernel, rest, known, [*done, *terms])
    return _branch(kernel, loop.body, known, done)


def _without(node: ast.AST, terms: Collection[str]) -> ast.expr | None:
    """A condition without what the branch has tested."""
    match node:
        case ast.BinOp(left, ast.BitAnd(), right):
            if ast.unparse(left) in terms:
                return right
            if ast.unparse(right) in terms:
                return left
    return None


def _common_terms(loop: ast.For, flow: Flow, known: set[str]) -> dict[str, ast.expr]:
    """Scalar parts that the masks of all masked vector loads under a loop have in common."""
    positions = {
        name
        for name, value in flow.definitions.items()
        if not isinstance(value, ast.Compare)
        and not (isinstance(value, ast.BinOp) and isinstance(value.op, ast.BitAnd))
    }
    common: dict[str, ast.expr] | None = None
    for call in calls(loop, "load"):
        mask = keyword(call, "mask")
        if mask is None:
            continue
        terms = {
            ast.unparse(t): t
            for t in parts(flow.inline(mask, keep=positions), ast.BitAnd)
            if not flow.is_vector(t) and names_in(t) - {"tl"} <= known and names_in(t)
        }
        common = terms if common is None else {k: t for k, t in common.items() if k in terms}
    return common or {}


def _escapes(kernel: ast.FunctionDef, rest: list[ast.stmt], name: str) -> bool:
    """Whether a name set in the rest of a body is read anywhere else, or carried around."""
    within = [n for s in rest for n in ast.walk(s)]
    inside = {id(n) for n in within}
    outside = [n for n in ast.walk(kernel) if id(n) not in inside]
    carried = [n.target for n in within if isinstance(n, ast.AugAssign)]
    return name in names_in(*carried) or any(
        isinstance(n, ast.Name) and n.id == name and not is_store(n) for n in outside
    )


class _Neutral:
    """Whether statements leave every carried name as it was where the masks are false.

    Every masked read under the loop has the terms of the branch in its mask (`_common_terms`), so
    it gives its `other` there: a product with 0 adds nothing, a maximum with -inf changes nothing.
    """

    def __init__(self, carried: set[str]) -> None:
        self.carried = carried
        self.zeros: set[str] = set()
        self.lowest: set[str] = set()

    def body(self, statements: list[ast.stmt]) -> bool:
        return all(map(self.statement, statements))

    def statement(self, s: ast.stmt) -> bool:
        """What the statement reads is remembered."""
        match s:
            case ast.For(target, _, body):
                return not names_in(target) & self.carried and self.body(body)
            case ast.If(_, body, orelse):
                return not orelse and self.body(body)
            case ast.AugAssign(_, sign, value):
                return isinstance(sign, ast.Add) and self.is_zero(value)
            case ast.Assign([ast.Name(name), *_], value):
                if name in self.carried and not self.keeps(value, name):
                    return False
                self.zeros |= {name} if self.is_zero(value) else set()
                self.lowest |= {name} if self.is_lowest(value) else set()
                return True
        return False

    def is_zero(self, node: ast.expr) -> bool:
        """Whether a value is 0 where the masks are false."""
        match uncast(node):
            case ast.BinOp(left, ast.Mult(), right):
                return self.is_zero(left) or self.is_zero(right)
            case inner:
                return _is_one_of(inner, self.zeros, "0", "0.0")

    def is_lowest(self, node: ast.expr) -> bool:
        """Whether a value is minus infinity where the masks are false."""
        return _is_one_of(uncast(node), self.lowest, "float('-inf')", "-float('inf')")

    def keeps(self, value: ast.expr, name: str) -> bool:
        """`name = tl.maximum(name, <lowest>)`, or a dot with a zero operand that adds to name."""
        if is_call(value, "dot"):
            third = value.args[2] if len(value.args) > 2 else keyword(value, "acc")
            own = isinstance(third, ast.Name) and third.id == name
            return own and any(map(self.is_zero, value.args[:2]))
        if is_call(value, "maximum"):
            first = value.args[0]
            own = isinstance(first, ast.Name) and first.id == name
            return own and self.is_lowest(value.args[1])
        return False


def _is_one_of(node: ast.expr, names: set[str], *others: str) -> bool:
    """Whether a node is one of the names, or a masked read that gives one of these elsewhere."""
    if isinstance(node, ast.Name):
        return node.id in names
    if not is_call(node, "load") or keyword(node, "mask") is None:
        return False
    other = keyword(node, "other")
    return other is not None and ast.unparse(other) in others

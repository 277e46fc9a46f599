"""Loop iterations whose mask is false for a whole program are skipped: a step of `residues`."""

from __future__ import annotations

import ast

from beamsearch.proposer.playbook.rewrites.flow import Flow, conjunction, conjuncts
from beamsearch.proposer.playbook.rewrites.source import (
    assigned_in,
    calls,
    copy,
    is_call,
    keyword,
    names_in,
    names_set,
    uncast,
)


def branch_on_scalars(kernel: ast.FunctionDef) -> int:
    """Put loop bodies under the scalar parts of their masks; the number of branches made."""
    return _branch(kernel, kernel.body, set(), [])


def _branch(
    kernel: ast.FunctionDef, body: list[ast.stmt], outside: set[str], done: list[str]
) -> int:
    made = 0
    for node in list(body):
        if isinstance(node, ast.For):
            before = names_set(*kernel.body) - names_set(node)
            made += _branch_loop(kernel, node, before | outside | names_in(node.target), done)
        elif isinstance(node, ast.If):
            made += _branch(kernel, node.body, outside, done)
    return made


def _branch_loop(
    kernel: ast.FunctionDef, loop: ast.For, available: set[str], done: list[str]
) -> int:
    flow = Flow(kernel)
    known = available | flow.parameters
    own = set(assigned_in(loop.body))
    terms = [
        t
        for t in _common_terms(loop, flow, known | own)
        if ast.unparse(t) not in done and flow.depends(t, names_in(loop.target) | own)
    ]
    made = 0
    inner_done = [*done, *(ast.unparse(t) for t in terms)]
    if terms:
        needed = flow.closure(set().union(*(names_in(t) for t in terms))) & own
        prelude = [
            s for s in loop.body if isinstance(s, ast.Assign) and names_in(s.targets[0]) & needed
        ]
        rest = [s for s in loop.body if s not in prelude]
        simple = all(not calls(s, "load") and not isinstance(s, ast.For) for s in prelude)
        local = names_set(*rest)
        escaping = {n for n in local if _read_outside(kernel, rest, n)}
        if simple and rest and _Neutral(escaping).body(rest):
            condition = conjunction([copy(t) for t in terms])
            branch = ast.If(test=condition, body=rest, orelse=[])
            _drop_terms(rest, {ast.unparse(t) for t in terms})
            loop.body = [*prelude, branch]
            made = 1
            return made + _branch(kernel, rest, known | own, inner_done)
    return made + _branch(kernel, loop.body, known | own, done)


def _common_terms(loop: ast.For, flow: Flow, known: set[str]) -> list[ast.expr]:
    """Scalar parts that the masks of all masked vector loads under a loop have in common."""
    common: list[ast.expr] | None = None
    for call in calls(loop, "load"):
        mask = keyword(call, "mask")
        if mask is None:
            continue
        terms = {
            ast.unparse(t): t
            for t in conjuncts(flow.inline(mask, keep=_not_conditions(flow)))
            if not flow.is_vector(t) and names_in(t) - {"tl"} <= known and names_in(t)
        }
        if common is None:
            common = list(terms.values())
        else:
            common = [t for t in common if ast.unparse(t) in terms]
    return common or []


def _not_conditions(flow: Flow) -> set[str]:
    """Names that stand for positions rather than conditions."""
    return {
        name
        for name, value in flow.definitions.items()
        if not (
            isinstance(value, ast.Compare)
            or (isinstance(value, ast.BinOp) and isinstance(value.op, ast.BitAnd))
        )
    }


def _read_outside(kernel: ast.FunctionDef, rest: list[ast.stmt], name: str) -> bool:
    """Whether a name set in the rest of a body is read anywhere else, or carried around."""
    inside = {id(n) for s in rest for n in ast.walk(s)}
    for node in ast.walk(kernel):
        if id(node) in inside:
            continue
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
            return True
    for s in rest:
        for n in ast.walk(s):
            if isinstance(n, ast.AugAssign) and ast.unparse(n.target) == name:
                return True
    return False


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
        """Whether all the statements do."""
        return all(map(self.statement, statements))

    def statement(self, s: ast.stmt) -> bool:
        """Whether one statement does; what it reads is remembered."""
        if isinstance(s, ast.For):
            return not names_in(s.target) & self.carried and self.body(s.body)
        if isinstance(s, ast.If):
            return not s.orelse and self.body(s.body)
        if isinstance(s, ast.AugAssign):
            return isinstance(s.op, ast.Add) and self.is_zero(s.value)
        if not (isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name)):
            return False
        name = s.targets[0].id
        if name in self.carried and not self.keeps(s.value, name):
            return False
        if self.is_zero(s.value):
            self.zeros.add(name)
        if self.is_lowest(s.value):
            self.lowest.add(name)
        return True

    def is_zero(self, node: ast.expr) -> bool:
        """Whether a value is 0 where the masks are false."""
        node = uncast(node)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            return self.is_zero(node.left) or self.is_zero(node.right)
        if isinstance(node, ast.Name):
            return node.id in self.zeros
        return _masked_other(node) in ("0", "0.0")

    def is_lowest(self, node: ast.expr) -> bool:
        """Whether a value is minus infinity where the masks are false."""
        node = uncast(node)
        if isinstance(node, ast.Name):
            return node.id in self.lowest
        return _masked_other(node) in ("float('-inf')", "-float('inf')")

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


def _masked_other(node: ast.expr) -> str | None:
    """What a masked read gives outside its mask, as text; None for anything else."""
    if is_call(node, "load") and keyword(node, "mask") is not None:
        other = keyword(node, "other")
        return ast.unparse(other) if other is not None else None
    return None


def _drop_terms(body: list[ast.stmt], terms: set[str]) -> None:
    """Leave out of conditions what the branch has tested."""

    class Drop(ast.NodeTransformer):
        def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
            self.generic_visit(node)
            if isinstance(node.op, ast.BitAnd):
                if ast.unparse(node.left) in terms:
                    return node.right
                if ast.unparse(node.right) in terms:
                    return node.left
            return node

    for s in body:
        Drop().visit(s)

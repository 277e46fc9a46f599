"""Where a kernel's values come from: definitions, dependencies, scalars and vectors."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
from functools import cached_property

from beamsearch.proposer.playbook.rewrites.source import (
    copy,
    is_call,
    keyword,
    names_in,
    parameters,
    substitute,
)

DEEPEST = 20
"""Definitions followed in a row; a definition that leads back to itself would never end."""
REDUCTIONS = ("sum", "max", "min", "reduce", "argmax", "argmin", "xor_sum")
SHAPED = frozenset(
    {"reshape", "view", "trans", "permute", "expand_dims", "broadcast_to", "dot", "dot_scaled"}
    | {"join", "split", "gather", "sort", "cumsum", "cumprod", "associative_scan", "histogram"}
    | {"interleave", "cat", "flip", "ravel", "topk", "make_block_ptr", "advance"}
    | {"make_tensor_descriptor", "inline_asm_elementwise"}
)
"""Functions whose meaning depends on the shape or order of axes."""


class Flow:
    """Definitions and dependencies of a kernel's names. Build a new one after a change."""

    def __init__(self, kernel: ast.FunctionDef) -> None:
        self.assigned: dict[str, list[ast.expr]] = {}
        self.changing: set[str] = set()
        """Names with more than one value: parameters, counters and what is added to."""
        for node in ast.walk(kernel):
            match node:
                case ast.Assign(targets, value):
                    names = names_in(*targets)
                case ast.AugAssign(ast.Name(name), _, value):
                    names = {name}
                    self.changing.add(name)
                case ast.For(target, value):
                    names = names_in(target)
                    self.changing |= names
                case _:
                    continue
            for name in names:
                self.assigned.setdefault(name, []).append(value)
        self.parameters = {p.arg for p in parameters(kernel)}
        self.vectors: set[str] = set()
        while more := {
            name
            for name, values in self.assigned.items()
            if name not in self.vectors and any(map(self.is_vector, values))
        }:
            self.vectors |= more

    @cached_property
    def definitions(self) -> dict[str, ast.expr]:
        """What each name stands for that is assigned once and changed nowhere."""
        return {
            name: values[0]
            for name, values in self.assigned.items()
            if len(values) == 1
            and name not in self.changing | self.parameters | names_in(values[0])
            and not isinstance(values[0], ast.Tuple)
        }

    def depends(self, node: ast.AST, on: set[str]) -> bool:
        """Whether a value depends on any of the names, however indirectly."""
        return bool(self.closure(names_in(node)) & on)

    def closure(self, names: set[str]) -> set[str]:
        """The names and all they depend on."""
        found: set[str] = set()
        while names:
            found |= names
            values = [value for name in names for value in self.assigned.get(name, [])]
            names = names_in(*values) - found
        return found

    def is_vector(self, node: ast.AST) -> bool:
        """Whether a value has axes: it comes from an arange or a shaped constant."""
        if is_call(node, *REDUCTIONS):
            if keyword(node, "axis") is None and len(node.args) < 2:
                return False
            # One axis less; of a vector nothing is left. Two-dimensional sources keep one.
            return any("None" in ast.unparse(a) for a in node.args)
        if is_call(node, "arange", "zeros", "full"):
            shape = node.args[0] if node.args else None
            return not (isinstance(shape, ast.Tuple | ast.List) and not shape.elts)
        if isinstance(node, ast.Attribute) and node.attr in ("dtype", "element_ty"):
            return False
        if isinstance(node, ast.Name):
            return node.id in self.vectors
        return any(map(self.is_vector, ast.iter_child_nodes(node)))

    def inline(self, node: ast.expr, keep: Collection[str] = ()) -> ast.expr:
        """The expression with every name replaced by its definition, but for those to keep."""
        return substitute_all(node, {k: v for k, v in self.definitions.items() if k not in keep})


def substitute_all(node: ast.expr, definitions: Mapping[str, ast.expr]) -> ast.expr:
    """The expression with definitions put in, and those of their names, until none is left."""
    result = copy(node)
    for _ in range(DEEPEST):
        if not definitions.keys() & names_in(result):
            break
        result = substitute(result, definitions)
    return result


def parts(node: ast.expr, joined_by: type[ast.operator]) -> list[ast.expr]:
    """The parts of a sum (`ast.Add`) or of a condition (`ast.BitAnd`), in order."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, joined_by):
        return [*parts(node.left, joined_by), *parts(node.right, joined_by)]
    return [node]


def factors(node: ast.expr, definitions: Mapping[str, ast.expr] | None = None) -> list[str]:
    """The factors of a product as text, sorted; names that stand for products are followed."""
    match node:
        case ast.Name(name):
            match (definitions or {}).get(name):
                case ast.BinOp(_, ast.Mult()) as value:
                    return factors(value, definitions)
        case ast.BinOp(left, ast.Mult(), right):
            return sorted([*factors(left, definitions), *factors(right, definitions)])
        case ast.Constant(1):
            return []
    return [ast.unparse(node)]


def product(parts: list[str]) -> str:
    """Factors as an expression's text."""
    simple = (p if p.isidentifier() or p.isdigit() else f"({p})" for p in parts)
    return " * ".join(simple) or "1"


def merge_augmented(body: list[ast.stmt]) -> None:
    """Turn `m = a` followed later by `m &= b` into one definition, in place, where nothing reads m
    in between; so that conditions built in steps are seen whole."""
    for node in body:
        for field in ("body", "orelse"):
            inner = getattr(node, field, None)
            if isinstance(inner, list) and not isinstance(node, ast.FunctionDef):
                merge_augmented(inner)
    for i in reversed(range(len(body))):
        late = body[i]
        if not (isinstance(late, ast.AugAssign) and isinstance(late.target, ast.Name)):
            continue
        name = late.target.id
        j = next((j for j in reversed(range(i)) if name in names_in(body[j])), i)
        match body[j]:
            case ast.Assign([ast.Name(given)], value) as early if given == name:
                whole = ast.BinOp(left=value, op=late.op, right=late.value)
            case _:
                continue
        between = names_in(*body[j + 1 : i], context=ast.Store)
        if not between & names_in(whole):
            early.value = whole
            del body[i]
        elif not between & names_in(value):  # b is defined in between: at the later place
            early.value, body[i] = whole, early
            del body[j]

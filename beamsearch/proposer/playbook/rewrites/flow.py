"""Where a kernel's values come from: definitions, dependencies, scalars and vectors."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cached_property

from beamsearch.proposer.playbook.rewrites.source import (
    Substitute,
    copy,
    is_call,
    names_in,
    names_set,
    parameters,
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
        self.augmented: set[str] = set()
        self.loop_variables: set[str] = set()
        for node in ast.walk(kernel):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    for name in names_in(target):
                        self.assigned.setdefault(name, []).append(node.value)
            elif isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                self.assigned.setdefault(node.target.id, []).append(node.value)
                self.augmented.add(node.target.id)
            elif isinstance(node, ast.For):
                for name in names_in(node.target):
                    self.loop_variables.add(name)
                    self.assigned.setdefault(name, []).append(node.iter)
        self.parameters = {p.arg for p in parameters(kernel)}
        self.vectors = self._vectors()

    @cached_property
    def definitions(self) -> dict[str, ast.expr]:
        """What each name stands for that is assigned once and changed nowhere."""
        return {
            name: values[0]
            for name, values in self.assigned.items()
            if len(values) == 1
            and name not in self.augmented
            and name not in self.loop_variables
            and name not in self.parameters
            and name not in names_in(values[0])
            and not isinstance(values[0], ast.Tuple)
        }

    def depends(self, node: ast.AST, on: set[str]) -> bool:
        """Whether a value depends on any of the names, however indirectly."""
        return bool(self.closure(names_in(node)) & on)

    def closure(self, names: set[str]) -> set[str]:
        """The names and all they depend on."""
        found: set[str] = set()
        todo = list(names)
        while todo:
            name = todo.pop()
            if name in found:
                continue
            found.add(name)
            for value in self.assigned.get(name, []):
                todo.extend(names_in(value))
        return found

    def is_vector(self, node: ast.AST) -> bool:
        """Whether a value has axes: it comes from an arange or a shaped constant."""
        return _is_vector(node, self.vectors)

    def _vectors(self) -> set[str]:
        vectors: set[str] = set()
        while True:
            more = {
                name
                for name, values in self.assigned.items()
                if name not in vectors and any(_is_vector(value, vectors) for value in values)
            }
            if not more:
                return vectors
            vectors |= more

    def inline(self, node: ast.expr, keep: set[str] | None = None) -> ast.expr:
        """The expression with every name replaced by its definition, but for those to keep."""
        definitions = {k: v for k, v in self.definitions.items() if k not in (keep or set())}
        return substitute_all(node, definitions)


def substitute_all(node: ast.expr, definitions: Mapping[str, ast.expr]) -> ast.expr:
    """The expression with definitions put in, and those of their names, until none is left."""
    result = copy(node)
    for _ in range(DEEPEST):
        known = {k: v for k, v in definitions.items() if k in names_in(result)}
        if not known:
            break
        result = Substitute(known).visit(result)
    return result


def _is_vector(node: ast.AST, vectors: set[str]) -> bool:
    if is_call(node, *REDUCTIONS):
        axis = next((k.value for k in node.keywords if k.arg == "axis"), None)
        if axis is None and len(node.args) < 2:
            return False
        # One axis less; of a vector nothing is left. Two-dimensional sources keep one.
        return any("None" in ast.unparse(a) for a in node.args)
    if is_call(node, "arange", "zeros", "full"):
        shape = node.args[0] if node.args else None
        return not (isinstance(shape, ast.Tuple | ast.List) and not shape.elts)
    if isinstance(node, ast.Attribute) and node.attr in ("dtype", "element_ty"):
        return False
    if isinstance(node, ast.Name):
        return node.id in vectors
    return any(_is_vector(child, vectors) for child in ast.iter_child_nodes(node))


def conjuncts(node: ast.expr) -> list[ast.expr]:
    """The parts of a condition joined by `&`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd):
        return [*conjuncts(node.left), *conjuncts(node.right)]
    return [node]


def conjunction(parts: list[ast.expr]) -> ast.expr:
    """Parts joined by `&`."""
    result = parts[0]
    for part in parts[1:]:
        result = ast.BinOp(left=result, op=ast.BitAnd(), right=part)
    return result


def summands(node: ast.expr) -> list[ast.expr]:
    """The parts of a sum, in order."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [*summands(node.left), *summands(node.right)]
    return [node]


def factors(node: ast.expr, definitions: dict[str, ast.expr] | None = None) -> list[str]:
    """The factors of a product as text, sorted; names that stand for products are followed."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return sorted([*factors(node.left, definitions), *factors(node.right, definitions)])
    if isinstance(node, ast.Name) and definitions and node.id in definitions:
        value = definitions[node.id]
        if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult):
            return factors(value, definitions)
    if isinstance(node, ast.Constant) and node.value == 1:
        return []
    return [ast.unparse(node)]


def product(parts: list[str]) -> str:
    """Factors as an expression's text."""
    return (
        " * ".join(f"({p})" if not p.isidentifier() and not p.isdigit() else p for p in parts)
        or "1"
    )


def merge_augmented(body: list[ast.stmt]) -> None:
    """Turn `m = a` followed later by `m &= b` into one definition, in place, where nothing reads m
    in between; so that conditions built in steps are seen whole."""
    for block in _blocks(body):
        for i in range(len(block) - 1, -1, -1):
            node = block[i]
            if not (isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name)):
                continue
            name = node.target.id
            for j in range(i - 1, -1, -1):
                before = block[j]
                if (
                    isinstance(before, ast.Assign)
                    and len(before.targets) == 1
                    and isinstance(before.targets[0], ast.Name)
                    and before.targets[0].id == name
                ):
                    value = ast.BinOp(left=before.value, op=node.op, right=node.value)
                    changed = names_set(*block[j + 1 : i])
                    if changed & names_in(value):
                        # b is defined in between: keep the later place instead.
                        block[i] = ast.copy_location(
                            ast.Assign(targets=before.targets, value=value), node
                        )
                        if names_in(before.value) & changed:
                            block[i] = node
                            break
                        del block[j]
                    else:
                        block[j] = ast.copy_location(
                            ast.Assign(targets=before.targets, value=value), before
                        )
                        del block[i]
                    break
                if name in names_in(before):
                    break


def _blocks(body: list[ast.stmt]) -> list[list[ast.stmt]]:
    found = [body]
    for node in body:
        for field in ("body", "orelse"):
            inner = getattr(node, field, None)
            if isinstance(inner, list) and not isinstance(node, ast.FunctionDef):
                found.extend(_blocks(inner))
    return found

"""Runtime shapes and strides become constexpr, so that index arithmetic and masks fold away."""

from __future__ import annotations

import ast

from beamsearch.proposer.playbook.rewrites.flow import Flow
from beamsearch.proposer.playbook.rewrites.hints import Hints
from beamsearch.proposer.playbook.rewrites.interface import Result, Rewrite, attempt
from beamsearch.proposer.playbook.rewrites.source import (
    Launch,
    Module,
    argument,
    calls,
    is_call,
    is_constexpr,
    keyword,
    names_in,
    parameters,
    parse,
)
from kernel_profiling.profile import FindingKind

SHAPE_CALLS = frozenset({"numel", "stride", "size", "cdiv", "next_power_of_2", "len"})


def apply(source: str, hints: Hints) -> list[Result]:
    """All integer parameters of all launched kernels at once."""
    return attempt(source, _all_constexpr)


def _all_constexpr(module: Module) -> str:
    done: list[str] = []
    for _, kernel, launches in module.launched():
        flow = Flow(kernel)
        integers = _used_as_integer(kernel, flow)
        refused = _refused(module, kernel, flow)
        for parameter in parameters(kernel):
            own = parameter.arg
            if is_constexpr(parameter) or parameter.annotation is not None or own in refused:
                continue
            if all(_is_shape(argument(kernel, launch, own), launch) for launch in launches) or (
                own in integers
            ):
                parameter.annotation = parse("tl.constexpr")
                done.append(own)
        constant = {p.arg for p in parameters(kernel) if is_constexpr(p)} & set(done)
        _Casts(constant).visit(kernel)
    return f"runtime sizes made constexpr ({', '.join(done)})"


def _pointers(kernel: ast.FunctionDef, flow: Flow) -> set[str]:
    """Parameters that addresses are built on, and those passed to other functions."""
    own = {p.arg for p in parameters(kernel)}
    found: set[str] = set()
    for call in [n for n in ast.walk(kernel) if isinstance(n, ast.Call)]:
        if is_call(call, "load", "store") or "atomic" in ast.unparse(call.func):
            for name in flow.closure(names_in(call.args[0])) & own:
                if _adds_up_to(call.args[0], name, flow):
                    found.add(name)
    for node in ast.walk(kernel):
        if isinstance(node, ast.Attribute) and node.attr in ("dtype", "type"):
            found |= names_in(node.value) & own
    return found


def _adds_up_to(address: ast.expr, name: str, flow: Flow) -> bool:
    """Whether an address starts with a name, through definitions: pointers stand first."""
    seen: set[str] = set()
    todo = [address]
    while todo:
        node = todo.pop()
        while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
            node = node.left
        if isinstance(node, ast.Name):
            if node.id == name:
                return True
            if node.id not in seen:
                seen.add(node.id)
                todo.extend(flow.assigned.get(node.id, []))
    return False


def _used_as_integer(kernel: ast.FunctionDef, flow: Flow) -> set[str]:
    """Parameters that are divided by, counted to, or compared with integer positions."""
    found: set[str] = set()
    for node in ast.walk(kernel):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.FloorDiv | ast.Mod):
            found |= flow.closure(names_in(node))
        if isinstance(node, ast.For) and isinstance(node.iter, ast.Call):
            found |= flow.closure(names_in(node.iter))
        if is_call(node, "load", "store"):
            found |= flow.closure(names_in(node.args[0]))
            mask = keyword(node, "mask")
            if mask is not None:
                found |= flow.closure(names_in(mask))
    return found


def _is_shape(value: ast.expr | None, launch: Launch, depth: int = 6) -> bool:  # noqa: C901, PLR0911
    """Whether a host expression is certainly an integer made of shapes."""
    if value is None or depth == 0:
        return False
    if isinstance(value, ast.Constant):
        return isinstance(value.value, int) and not isinstance(value.value, bool)
    if isinstance(value, ast.BinOp) and not isinstance(value.op, ast.Div):
        return _is_shape(value.left, launch, depth - 1) and _is_shape(
            value.right, launch, depth - 1
        )
    if isinstance(value, ast.Call):
        function = value.func
        named = (
            function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        )
        return named in SHAPE_CALLS
    if isinstance(value, ast.Subscript):
        return ast.unparse(value.value).endswith(".shape")
    if isinstance(value, ast.Name):
        sources = []
        for node in ast.walk(launch.function):
            if isinstance(node, ast.Assign):
                for target in node.targets:
                    if isinstance(target, ast.Name) and target.id == value.id:
                        sources.append(_is_shape(node.value, launch, depth - 1))
                    elif value.id in names_in(target):
                        sources.append(_unpacks_shape(target, node.value, value.id, launch, depth))
        return bool(sources) and all(sources)
    return False


def _unpacks_shape(
    target: ast.expr, value: ast.expr, name: str, launch: Launch, depth: int
) -> bool:
    if ast.unparse(value).endswith(".shape"):
        return True
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for element, part in zip(target.elts, value.elts, strict=False):
            if isinstance(element, ast.Name) and element.id == name:
                return _is_shape(part, launch, depth - 1)
    return False


def _refused(module: Module, kernel: ast.FunctionDef, flow: Flow) -> set[str]:
    """Parameters that must stay as they are."""
    own = {p.arg for p in parameters(kernel)}
    refused = _pointers(kernel, flow) | (set(flow.assigned) & own)
    for node in ast.walk(kernel):
        # Python floors where the GPU truncates: a constant quotient of a negative would differ.
        if (
            isinstance(node, ast.BinOp)
            and isinstance(node.op, ast.FloorDiv | ast.Mod)
            and names_in(node) <= own
            and any(isinstance(n, ast.Sub | ast.USub) for n in ast.walk(node))
        ):
            refused |= names_in(node)
        # Another kernel function may do anything with what it is passed, a float for one.
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in module.kernels
        ):
            for argument_node in [*node.args, *(k.value for k in node.keywords)]:
                refused |= names_in(argument_node) & own
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            casts = node.attr == "to"
            if node.value.id in own and not casts:
                refused.add(node.value.id)
    for call in calls(kernel, "multiple_of", "assume"):
        refused |= names_in(call.args[0]) & own if isinstance(call.args[0], ast.Name) else set()
    return refused


class _Casts(ast.NodeTransformer):
    """`name.to(type)` -> `tl.cast(name, type)`: a constant has no methods."""

    def __init__(self, names: set[str]) -> None:
        self.names = names

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """A call, rewritten where it casts one of the names."""
        self.generic_visit(node)
        function = node.func
        if (
            isinstance(function, ast.Attribute)
            and function.attr == "to"
            and names_in(function.value)
            and names_in(function.value) <= self.names
        ):
            return ast.Call(func=parse("tl.cast"), args=[function.value, *node.args], keywords=[])
        return node


REWRITE = Rewrite(
    "constexpr sizes",
    (FindingKind.INTEGER_OVERHEAD, FindingKind.ISSUE_BOUND, FindingKind.LATENCY),
    apply,
)

"""Runtime shapes and strides become constexpr, so that index arithmetic and masks fold away."""

from __future__ import annotations

import ast

from beamsearch.proposer.playbook.rewrites.flow import Flow
from beamsearch.proposer.playbook.rewrites.source import (
    Launch,
    Module,
    Rewrite,
    calls,
    is_call,
    keyword,
    names_in,
    on_module,
    parameters,
    parse,
    replace,
)
from kernel_profiling.profile import FindingKind

SIZES = "runtime sizes"
"""What the description of this rewrite begins with."""
SHAPE_CALLS = frozenset({"numel", "stride", "size", "cdiv", "next_power_of_2", "len"})


def _all_constexpr(module: Module) -> str:
    """All integer parameters of all launched kernels at once."""
    done: list[str] = []
    for launches in filter(None, module.launches.values()):
        kernel = launches[0].kernel
        flow = Flow(kernel)
        integers = _used_as_integer(kernel, flow)
        refused = _refused(module, kernel, flow)
        constant = set()
        for parameter in parameters(kernel):
            name = parameter.arg
            if parameter.annotation is not None or name in refused:
                continue
            if name in integers or all(_is_shape(x.argument(name), x) for x in launches):
                parameter.annotation = parse("tl.constexpr")
                constant.add(name)
                done.append(name)

        def cast(node: ast.AST, constant: set[str] = constant) -> ast.expr | None:
            """`name.to(type)` -> `tl.cast(name, type)`: a constant has no methods."""
            match node:
                case ast.Call(ast.Attribute(value, "to"), args):
                    if (names := names_in(value)) and names <= constant:
                        return ast.Call(func=parse("tl.cast"), args=[value, *args], keywords=[])
            return None

        replace(kernel, cast, inner_first=True)
    return f"{SIZES} made constexpr ({', '.join(done)})"


def _pointers(kernel: ast.FunctionDef, flow: Flow) -> set[str]:
    """Parameters that addresses are built on, and those whose type is looked at."""
    found: set[str] = set()
    for node in ast.walk(kernel):
        if isinstance(node, ast.Attribute) and node.attr in ("dtype", "type"):
            found |= names_in(node.value)
        if isinstance(node, ast.Call) and (
            is_call(node, "load", "store") or "atomic" in ast.unparse(node.func)
        ):
            found |= _starts(node.args[0], flow)
    return found & flow.parameters


def _starts(address: ast.expr, flow: Flow) -> set[str]:
    """Names that an address starts with, through definitions: pointers stand first."""
    found: set[str] = set()
    todo = [address]
    while todo:
        match todo.pop():
            case ast.BinOp(left, ast.Add() | ast.Sub()):
                todo.append(left)
            case ast.Subscript(whole):  # `(pointer + row)[:, None]`
                todo.append(whole)
            case ast.Name(name) if name not in found:
                found.add(name)
                todo.extend(flow.assigned.get(name, []))
    return found


def _used_as_integer(kernel: ast.FunctionDef, flow: Flow) -> set[str]:
    """Parameters that are divided by, counted to, or compared with integer positions."""
    used: list[ast.AST] = []
    for node in ast.walk(kernel):
        match node:
            case ast.BinOp(_, ast.FloorDiv() | ast.Mod()):
                used.append(node)
            case ast.For(_, ast.Call() as counted):
                used.append(counted)
            case ast.Call() if is_call(node, "load", "store"):
                mask = keyword(node, "mask")
                used += [node.args[0], *([] if mask is None else [mask])]
    return flow.closure(names_in(*used))


def _is_shape(value: ast.expr | None, launch: Launch, depth: int = 6) -> bool:  # noqa: PLR0911
    """Whether a host expression is certainly an integer made of shapes."""
    if depth == 0:
        return False
    match value:
        case ast.Constant(known):
            return type(known) is int
        case ast.BinOp(left, sign, right) if not isinstance(sign, ast.Div):
            return all(_is_shape(side, launch, depth - 1) for side in (left, right))
        case ast.Call(ast.Attribute(_, function) | ast.Name(function)):
            return function in SHAPE_CALLS
        case ast.Subscript(whole):
            return ast.unparse(whole).endswith(".shape")
        case ast.Name(name):
            sources = [
                _gives_shape(target, node.value, name, launch, depth - 1)
                for node in ast.walk(launch.function)
                if isinstance(node, ast.Assign)
                for target in node.targets
                if name in names_in(target)
            ]
            return bool(sources) and all(sources)
    return False


def _gives_shape(target: ast.expr, value: ast.expr, name: str, launch: Launch, depth: int) -> bool:
    """Whether an assignment gives a name such an integer, alone or as one of several."""
    if isinstance(target, ast.Name):
        return _is_shape(value, launch, depth)
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for element, part in zip(target.elts, value.elts, strict=False):
            if isinstance(element, ast.Name) and element.id == name:
                return _is_shape(part, launch, depth)
    return ast.unparse(value).endswith(".shape")


def _refused(module: Module, kernel: ast.FunctionDef, flow: Flow) -> set[str]:
    """Parameters that must stay as they are."""
    own = flow.parameters
    refused = _pointers(kernel, flow) | set(flow.assigned)
    for node in ast.walk(kernel):
        match node:
            # Python floors where the GPU truncates: a constant quotient of a negative would differ.
            case ast.BinOp(_, ast.FloorDiv() | ast.Mod()) if names_in(node) <= own:
                if any(isinstance(n, ast.Sub | ast.USub) for n in ast.walk(node)):
                    refused |= names_in(node)
            # Another kernel function may do anything with what it is passed, a float for one.
            case ast.Call(ast.Name(function), args, keywords) if function in module.kernels:
                refused |= names_in(*args, *keywords)
            case ast.Attribute(ast.Name(name), method) if method != "to":
                refused.add(name)
    for call in calls(kernel, "multiple_of", "assume"):
        refused |= names_in(call.args[0]) if isinstance(call.args[0], ast.Name) else set()
    return refused


REWRITE = Rewrite(
    "constexpr sizes",
    (FindingKind.INTEGER_OVERHEAD, FindingKind.ISSUE_BOUND, FindingKind.LATENCY),
    on_module(_all_constexpr),
)

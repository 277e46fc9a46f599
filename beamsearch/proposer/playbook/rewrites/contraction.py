"""A scalar loop of multiply-adds becomes `tl.dot`, so that the matrix units do the work.

Fits a loop `acc += x * w` where x varies with lanes and loop, and w with the loop and with one
digit of a program id: the loop is contracted, the digit becomes a second axis of the accumulator.
Products of bfloat16 and float16 are exact in float32 either way, and the sum stays in float32.
"""

from __future__ import annotations

import ast
from copy import deepcopy
from dataclasses import dataclass
from functools import partial

from beamsearch.proposer.playbook.rewrites.digits import (
    FlatIndex,
    host_factors,
    take_apart,
    without,
)
from beamsearch.proposer.playbook.rewrites.flow import (
    REDUCTIONS,
    SHAPED,
    Flow,
    merge_augmented,
    product,
    substitute_all,
)
from beamsearch.proposer.playbook.rewrites.hints import Hints
from beamsearch.proposer.playbook.rewrites.interface import Result, Rewrite, attempt_kernel
from beamsearch.proposer.playbook.rewrites.launch import block_parameters, set_block
from beamsearch.proposer.playbook.rewrites.source import (
    Launch,
    Module,
    NotApplicable,
    Substitute,
    add_constexpr,
    assigned_in,
    calls,
    fresh,
    grid_axes,
    host_value,
    is_call,
    keyword,
    names_in,
    narrow_mask,
    parse,
    replace,
    set_argument,
    set_grid,
    statements,
    uncast,
)
from beamsearch.proposer.playbook.rewrites.unroll import range_bound
from kernel_profiling.profile import FindingKind

LEAST = 16
"""The least length of any axis of `tl.dot`."""


@dataclass
class _Product:
    """The loop, and its two loads."""

    loop: ast.For
    accumulator: str
    lanes: ast.Call
    weights: ast.Call
    bound: str


def apply(source: str, hints: Hints) -> list[Result]:
    """Tiles of several sizes: lanes, outputs, warps."""
    results = []
    for sizes in ((256, 64, 8), (128, 64, 4), (512, 64, 16), (128, 128, 8)):
        results += attempt_kernel(source, partial(_contract, sizes))
    return results


def _contract(
    sizes: tuple[int, int, int], module: Module, kernel: ast.FunctionDef, launch: Launch
) -> str:
    merge_augmented(kernel.body)
    if calls(kernel, *SHAPED, *REDUCTIONS) or len(calls(kernel, "arange")) != 1:
        raise NotApplicable("the kernel uses axes itself")
    found = _find(kernel)
    digit, root = _digit(kernel, found)
    extent = root.digits[0].extent
    assert extent is not None
    axes = grid_axes(launch)
    host_extent = host_value(kernel, launch, parse(extent))
    others = without(host_factors(axes[root.axis], launch), host_factors(host_extent, launch))
    if others is None:
        raise NotApplicable("the grid does not cover the digit")
    bound = host_value(kernel, launch, parse(found.bound))
    blocks = block_parameters(module, kernel, launch)
    axis = add_constexpr(kernel, launch, "OUTPUTS", _size(host_extent, sizes[1]))
    depth = add_constexpr(kernel, launch, "DEPTH", _size(bound, 64))
    inside = f"({digit} < {extent})"
    _replace_loop(kernel, found, depth, inside)
    _mask_others(kernel, found, digit, inside)
    _add_axes(kernel, axis)
    _define(kernel, root, axis)
    if len(blocks) == 1:
        set_block(module, kernel, launch, blocks[0], sizes[0])
    axes = grid_axes(launch)
    rest = f" * ({product(others)})" if others else ""
    axes[root.axis] = parse(f"triton.cdiv({ast.unparse(host_extent)}, META['{axis}']){rest}")
    set_grid(launch, axes)
    set_argument(kernel, launch, "num_warps", ast.Constant(value=sizes[2]))
    loop = ast.unparse(found.loop.target)
    return (
        f"sum over {loop} in {kernel.name} done by tl.dot, "
        f"tile {sizes[0]} by up to {sizes[1]} of {digit}, {sizes[2]} warps"
    )


def _size(host: ast.expr, most: int) -> ast.expr:
    return parse(f"max({LEAST}, min(triton.next_power_of_2({ast.unparse(host)}), {most}))")


def _find(kernel: ast.FunctionDef) -> _Product:
    """The innermost loop that only adds a product of two loads."""
    flow = Flow(kernel)
    for loop in [n for n in ast.walk(kernel) if isinstance(n, ast.For)]:
        bound = range_bound(loop)
        last = loop.body[-1]
        if bound is None or is_call(loop.iter, "static_range") or len(calls(loop, "load")) != 2:
            continue
        if not all(isinstance(s, ast.Assign) for s in loop.body[:-1]):
            continue
        if not (isinstance(last, ast.AugAssign) and isinstance(last.op, ast.Add)):
            continue
        if not (isinstance(last.value, ast.BinOp) and isinstance(last.value.op, ast.Mult)):
            continue
        local = assigned_in(loop.body[:-1])
        sides = [_as_load(s, local) for s in (last.value.left, last.value.right)]
        if any(s is None for s in sides):
            continue
        vector = [flow.is_vector(s.args[0]) for s in sides if s is not None]
        if sorted(vector) != [False, True]:
            continue
        lanes, weights = sides if vector[0] else sides[::-1]
        assert lanes is not None and weights is not None and isinstance(last.target, ast.Name)
        if keyword(weights, "mask") is not None or flow.is_vector(bound):
            continue
        other = keyword(lanes, "other")
        if keyword(lanes, "mask") is not None and ast.unparse(other or parse("None")) not in (
            "0.0",
            "0",
        ):
            continue
        _check_accumulator(kernel, last.target.id, loop)
        return _Product(loop, last.target.id, lanes, weights, ast.unparse(bound))
    raise NotApplicable("no loop that sums a product of two loads")


def _as_load(node: ast.expr, local: dict[str, ast.expr]) -> ast.Call | None:
    for _ in range(4):
        node = uncast(node)
        if is_call(node, "load"):
            return node
        if isinstance(node, ast.Name) and node.id in local:
            node = local[node.id]
    return None


def _check_accumulator(kernel: ast.FunctionDef, name: str, loop: ast.For) -> None:
    """The accumulator starts as float32 zeros, and only this loop adds to it."""
    values = [
        s
        for s in ast.walk(kernel)
        if isinstance(s, ast.Assign | ast.AugAssign)
        and name in names_in(s.targets[0] if isinstance(s, ast.Assign) else s.target)
    ]
    starts = [s for s in values if isinstance(s, ast.Assign)]
    if len(values) != 2 or len(starts) != 1 or not is_call(starts[0].value, "zeros"):
        raise NotApplicable("the accumulator is not a plain sum")
    if "float32" not in ast.unparse(starts[0].value):
        raise NotApplicable("the accumulator is not float32")
    if len(calls(kernel, "zeros", "full")) != 1:
        raise NotApplicable("several accumulators")
    if loop.body[-1] not in values:
        raise NotApplicable("another loop adds to the accumulator")


def _digit(kernel: ast.FunctionDef, found: _Product) -> tuple[str, FlatIndex]:
    """The program id's fastest digit that only the weights depend on, taken apart."""
    flow = Flow(kernel)
    weights = flow.closure(names_in(found.weights.args[0]))
    found.lanes.is_lanes = True  # type: ignore[attr-defined]
    for axis in (0, 1, 2):
        trial = FlatIndex("<program>", axis, f"tl.program_id({axis})", None)
        changed = deepcopy(kernel)
        try:
            take_apart(changed, trial, flow)
        except NotApplicable:
            continue
        digit = trial.digits[0].name
        left = Flow(changed)
        address = next(c for c in calls(changed, "load") if getattr(c, "is_lanes", False)).args[0]
        lanes = left.closure(names_in(address))
        sources = [address, *(v for name in lanes for v in left.assigned.get(name, []))]
        whole = any(_axis(c) == axis for value in sources for c in calls(value, "program_id"))
        if digit in weights and digit not in lanes and not whole:
            root = FlatIndex("<program>", axis, f"tl.program_id({axis})", None)
            take_apart(kernel, root, flow)
            return digit, root
    raise NotApplicable("no digit of a program id that only the weights vary with")


def _axis(call: ast.Call) -> int | None:
    node = call.args[0] if call.args else call.keywords[0].value
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, int) else None


def _replace_loop(kernel: ast.FunctionDef, found: _Product, depth: str, inside: str) -> None:
    loop = found.loop
    assert isinstance(loop.target, ast.Name)
    variable = loop.target.id
    local = {k: v for k, v in assigned_in(loop.body).items() if not calls(v, "load")}
    start = fresh(kernel, f"{variable}_start")
    row, column = fresh(kernel, f"{variable}_row"), fresh(kernel, f"{variable}_column")
    used = names_in(kernel)
    left = "left" if "left" not in used else fresh(kernel, "left")
    right = fresh(kernel, "right")
    texts = []
    for call, name in ((found.lanes, row), (found.weights, column)):
        swap = {variable: ast.Name(id=name, ctx=ast.Load())}
        address = Substitute(swap).visit(substitute_all(call.args[0], local))
        mask = keyword(call, "mask")
        parts = [f"({name} < {found.bound})"]
        if name == column:
            parts.append(inside)
        if mask is not None:
            parts.insert(0, f"({ast.unparse(Substitute(swap).visit(substitute_all(mask, local)))})")
        extra = "".join(
            f", {k.arg}={ast.unparse(k.value)}"
            for k in call.keywords
            if k.arg not in ("mask", "other")
        )
        texts.append(f"tl.load({ast.unparse(address)}, mask={' & '.join(parts)}, other=0.0{extra})")
    loop.target = ast.Name(id=start, ctx=ast.Store())
    loop.iter = parse(f"range(0, {found.bound}, {depth})")
    total = found.accumulator
    loop.body = statements(
        f"{row} = {start} + tl.arange(0, {depth})[None, :]\n"
        f"{column} = {start} + tl.arange(0, {depth})[:, None]\n"
        f"{left} = {texts[0]}\n"
        f"{right} = {texts[1]}\n"
        f"{total} = tl.dot({left}, {right}, {total}, input_precision='ieee')\n"
    )


def _mask_others(kernel: ast.FunctionDef, found: _Product, digit: str, inside: str) -> None:
    """Reads and writes that vary with the digit stay inside its extent."""
    flow = Flow(kernel)
    inner = {id(n) for n in ast.walk(found.loop)}
    reached = False
    for call in calls(kernel, "load", "store"):
        if id(call) in inner:
            continue
        names = flow.closure(names_in(call.args[0]))
        program = any(
            calls(v, "program_id") for n in names for v in flow.assigned.get(n, [])
        ) or calls(call.args[0], "program_id")
        if digit not in names and not program:
            if is_call(call, "store"):
                raise NotApplicable("a store that does not vary with the digit")
            continue
        reached = reached or is_call(call, "store")
        narrow_mask(call, inside)
    if not reached:
        raise NotApplicable("nothing is stored by the digit")


def _add_axes(kernel: ast.FunctionDef, axis: str) -> None:
    """Lanes along the first axis, the digit along the second."""

    def placed(node: ast.AST) -> ast.expr | None:
        if isinstance(node, ast.Subscript) and is_call(node.value, "arange"):
            return node
        return parse(f"{ast.unparse(node)}[:, None]") if is_call(node, "arange") else None

    for call in calls(kernel, "zeros"):
        if isinstance(call.args[0], ast.Tuple | ast.List):
            call.args[0] = parse(f"({ast.unparse(call.args[0].elts[0])}, {axis})")
    replace(kernel, placed)


def _define(kernel: ast.FunctionDef, root: FlatIndex, axis: str) -> None:
    """Define the digit as an axis, and the program id as it was."""
    digit, rest = root.digits[0], root.digits[1]
    whole = f"({rest.name} * ({digit.extent}) + {digit.name})"

    def program(node: ast.AST) -> ast.expr | None:
        own = is_call(node, "program_id") and _axis(node) == root.axis
        return parse(whole) if own else None

    replace(kernel, program)
    group = fresh(kernel, "group")
    groups = f"(({digit.extent} + {axis} - 1) // {axis})"
    lines = statements(
        f"{group} = {root.program}\n"
        f"{digit.name} = {group} % {groups} * {axis} + tl.arange(0, {axis})[None, :]\n"
        f"{rest.name} = {group} // {groups}\n"
    )
    at = 1 if ast.get_docstring(kernel) else 0
    kernel.body[at:at] = lines


REWRITE = Rewrite("matrix units", (FindingKind.IDLE_MATRIX_UNITS, FindingKind.ISSUE_BOUND), apply)

"""A scalar loop of multiply-adds becomes `tl.dot`, so that the matrix units do the work.

Fits a loop `acc += x * w` where x varies with lanes and loop, and w with the loop and with one
digit of a program id: the loop is contracted, the digit becomes a second axis of the accumulator.
Products of bfloat16 and float16 are exact in float32 either way, and the sum stays in float32.
"""

from __future__ import annotations

import ast
from copy import deepcopy
from dataclasses import dataclass

from beamsearch.proposer.playbook.rewrites.digits import (
    FlatIndex,
    host_factors,
    program_axis,
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
from beamsearch.proposer.playbook.rewrites.launch import block_parameters, set_block
from beamsearch.proposer.playbook.rewrites.source import (
    Launch,
    NotApplicable,
    Rewrite,
    assigned_in,
    calls,
    fresh,
    is_call,
    keyword,
    names_in,
    narrow_mask,
    on_kernel,
    parse,
    replace,
    statements,
    substitute,
    uncast,
)
from beamsearch.proposer.playbook.rewrites.unroll import range_bound
from kernel_profiling.profile import FindingKind

LEAST = 16
"""The least length of any axis of `tl.dot`."""
TILES = ((256, 64, 8), (128, 64, 4), (512, 64, 16), (128, 128, 8))
"""Lanes, outputs and warps."""


@dataclass
class _Product:
    """The loop, and its two loads."""

    loop: ast.For
    variable: str
    accumulator: str
    lanes: ast.Call
    weights: ast.Call
    bound: str


def _contract(launch: Launch, lanes: int, outputs: int, warps: int) -> str:
    kernel = launch.kernel
    merge_augmented(kernel.body)
    if calls(kernel, *SHAPED, *REDUCTIONS) or len(calls(kernel, "arange")) != 1:
        raise NotApplicable("the kernel uses axes itself")
    found = _find(kernel)
    root = _digit(kernel, found)
    digit, extent = root.digits[0].name, root.digits[0].extent
    host_extent = launch.on_host(extent)
    programs = host_factors(launch.grid_axes()[root.axis], launch)
    others = without(programs, host_factors(parse(host_extent), launch))
    if others is None:
        raise NotApplicable("the grid does not cover the digit")
    bound = launch.on_host(found.bound)
    blocks = block_parameters(launch)
    axis = launch.add_constexpr("OUTPUTS", _size(host_extent, outputs))
    depth = launch.add_constexpr("DEPTH", _size(bound, 64))
    inside = f"({digit} < {extent})"
    _replace_loop(kernel, found, depth, inside)
    _mask_others(kernel, found, digit, inside)
    _add_axes(kernel, axis)
    _define(kernel, root, axis)
    if len(blocks) == 1:
        set_block(launch, blocks[0], lanes)
    rest = f" * ({product(others)})" if others else ""
    launch.set_axis(root.axis, f"triton.cdiv({host_extent}, META['{axis}']){rest}")
    launch.set_argument("num_warps", f"{warps}")
    return (
        f"sum over {ast.unparse(found.loop.target)} in {kernel.name} done by tl.dot, "
        f"tile {lanes} by up to {outputs} of {digit}, {warps} warps"
    )


def _size(host: str, most: int) -> str:
    return f"max({LEAST}, min(triton.next_power_of_2({host}), {most}))"


def _find(kernel: ast.FunctionDef) -> _Product:
    """The innermost loop that only adds a product of two loads."""
    flow = Flow(kernel)
    for loop in [n for n in ast.walk(kernel) if isinstance(n, ast.For)]:
        bound = range_bound(loop)
        *before, last = loop.body
        if bound is None or is_call(loop.iter, "static_range") or len(calls(loop, "load")) != 2:
            continue
        match loop.target, last:
            case (
                ast.Name(variable),
                ast.AugAssign(ast.Name(name), ast.Add(), ast.BinOp(left, ast.Mult(), right)),
            ) if all(isinstance(s, ast.Assign) for s in before):
                local = assigned_in(before)
                one, other = _as_load(left, local), _as_load(right, local)
            case _:
                continue
        if one is None or other is None:
            continue
        if flow.is_vector(other.args[0]):
            one, other = other, one
        if not flow.is_vector(one.args[0]) or flow.is_vector(other.args[0]):
            continue
        if keyword(other, "mask") is not None or flow.is_vector(bound):
            continue
        outside = keyword(one, "other")
        if keyword(one, "mask") is not None and (
            outside is None or ast.unparse(outside) not in ("0.0", "0")
        ):
            continue
        _check_accumulator(kernel, name, last)
        return _Product(loop, variable, name, one, other, ast.unparse(bound))
    raise NotApplicable("no loop that sums a product of two loads")


def _as_load(node: ast.expr, local: dict[str, ast.expr]) -> ast.Call | None:
    for _ in range(4):
        node = uncast(node)
        if is_call(node, "load"):
            return node
        node = local.get(ast.unparse(node), node)
    return None


def _check_accumulator(kernel: ast.FunctionDef, name: str, addition: ast.stmt) -> None:
    """The accumulator starts as float32 zeros, and only this statement adds to it."""
    starts, additions = [], []
    for node in ast.walk(kernel):
        match node:
            case ast.Assign([target, *_], value) if name in names_in(target):
                starts.append(value)
            case ast.AugAssign(target) if name in names_in(target):
                additions.append(node)
    if additions != [addition] or len(starts) != 1 or not is_call(starts[0], "zeros"):
        raise NotApplicable("the accumulator is not a plain sum")
    if "float32" not in ast.unparse(starts[0]):
        raise NotApplicable("the accumulator is not float32")
    if len(calls(kernel, "zeros", "full")) != 1:
        raise NotApplicable("several accumulators")


def _digit(kernel: ast.FunctionDef, found: _Product) -> FlatIndex:
    """The program id's fastest digit that only the weights depend on, taken apart."""
    flow = Flow(kernel)
    weights = flow.closure(names_in(found.weights.args[0]))
    for axis in (0, 1, 2):
        trial, root = (FlatIndex("<program>", axis, f"tl.program_id({axis})") for _ in range(2))
        copies: dict[int, ast.Call] = {}
        changed = deepcopy(kernel, copies)
        try:
            take_apart(changed, trial, flow)
        except NotApplicable:
            continue
        digit = trial.digits[0].name
        left = Flow(changed)
        address = copies[id(found.lanes)].args[0]
        lanes = left.closure(names_in(address))
        sources = [address, *(v for name in lanes for v in left.assigned.get(name, []))]
        whole = any(program_axis(n) == axis for source in sources for n in ast.walk(source))
        if digit in weights and digit not in lanes and not whole:
            take_apart(kernel, root, flow)
            return root
    raise NotApplicable("no digit of a program id that only the weights vary with")


def _replace_loop(kernel: ast.FunctionDef, found: _Product, depth: str, inside: str) -> None:
    loop, variable, total = found.loop, found.variable, found.accumulator
    local = {k: v for k, v in assigned_in(loop.body).items() if not calls(v, "load")}
    start, row, column = (fresh(kernel, f"{variable}_{n}") for n in ("start", "row", "column"))
    left, right = fresh(kernel, "left"), fresh(kernel, "right")

    def load(call: ast.Call, name: str, *conditions: str) -> str:
        def at(node: ast.expr) -> str:
            return ast.unparse(substitute(substitute_all(node, local), {variable: parse(name)}))

        mask = keyword(call, "mask")
        first = [] if mask is None else [f"({at(mask)})"]
        masks = " & ".join([*first, f"({name} < {found.bound})", *conditions])
        others = [k for k in call.keywords if k.arg not in ("mask", "other")]
        extra = "".join(f", {k.arg}={ast.unparse(k.value)}" for k in others)
        return f"tl.load({at(call.args[0])}, mask={masks}, other=0.0{extra})"

    body = (
        f"{row} = {start} + tl.arange(0, {depth})[None, :]\n"
        f"{column} = {start} + tl.arange(0, {depth})[:, None]\n"
        f"{left} = {load(found.lanes, row)}\n"
        f"{right} = {load(found.weights, column, inside)}\n"
        f"{total} = tl.dot({left}, {right}, {total}, input_precision='ieee')\n"
    )
    loop.target = ast.Name(id=start, ctx=ast.Store())
    loop.iter = parse(f"range(0, {found.bound}, {depth})")
    loop.body = statements(body)


def _mask_others(kernel: ast.FunctionDef, found: _Product, digit: str, inside: str) -> None:
    """Reads and writes that vary with the digit stay inside its extent."""
    flow = Flow(kernel)
    inner = {id(n) for n in ast.walk(found.loop)}
    stored = False
    for call in calls(kernel, "load", "store"):
        if id(call) in inner:
            continue
        names = flow.closure(names_in(call.args[0]))
        values = [call.args[0], *(v for n in names for v in flow.assigned.get(n, []))]
        if digit in names or any(calls(value, "program_id") for value in values):
            stored = stored or is_call(call, "store")
            narrow_mask(call, inside)
        elif is_call(call, "store"):
            raise NotApplicable("a store that does not vary with the digit")
    if not stored:
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
    replace(kernel, lambda node: parse(whole) if program_axis(node) == root.axis else None)
    group = fresh(kernel, "group")
    groups = f"(({digit.extent} + {axis} - 1) // {axis})"
    at = 1 if ast.get_docstring(kernel) else 0
    kernel.body[at:at] = statements(
        f"{group} = {root.program}\n"
        f"{digit.name} = {group} % {groups} * {axis} + tl.arange(0, {axis})[None, :]\n"
        f"{rest.name} = {group} // {groups}\n"
    )


REWRITE = Rewrite(
    "matrix units",
    (FindingKind.IDLE_MATRIX_UNITS, FindingKind.ISSUE_BOUND),
    on_kernel(_contract, TILES),
)

"""Several rows a program, each with its own accumulator: rows read by more than one are read once.

After unrolling, the rows' loads stand in one block, and the compiler merges those of equal address:
a window of 3 over 8 rows reads 10 rows instead of 24. The last strip is moved back so that it ends
with the image; rows computed twice are stored twice with the same value.
"""

from __future__ import annotations

import ast
from functools import partial

from beamsearch.proposer.playbook.rewrites.digits import (
    FlatIndex,
    bound_of,
    check_grid,
    drop_unread,
    rows_on_host,
)
from beamsearch.proposer.playbook.rewrites.flow import Flow, substitute_all
from beamsearch.proposer.playbook.rewrites.hints import Hints
from beamsearch.proposer.playbook.rewrites.interface import Result, Rewrite, attempt_kernel
from beamsearch.proposer.playbook.rewrites.retile import (
    count_rows,
    digit_lines,
    prepare,
    replace_compares,
    set_lanes,
)
from beamsearch.proposer.playbook.rewrites.source import (
    Launch,
    Module,
    NotApplicable,
    add_constexpr,
    argument,
    calls,
    fresh,
    host_value,
    is_call,
    names_in,
    parse,
    set_grid,
    statements,
)
from beamsearch.proposer.playbook.rewrites.unroll import (
    SHORT,
    is_static,
    loop_length,
    make_static,
)
from kernel_profiling.profile import FindingKind

STRIPS = (8, 4, 16, 2)
"""Rows a program."""
MOST_LOADS = 192
"""Loads written out in one program at most, before equal ones are merged."""


def apply(source: str, hints: Hints) -> list[Result]:
    """Strips of several heights."""
    results = []
    for rows in STRIPS:
        results += attempt_kernel(source, partial(_strip, hints, rows))
    return results


def _strip(hints: Hints, rows: int, module: Module, kernel: ast.FunctionDef, launch: Launch) -> str:
    values = hints.launch_values(module, kernel.name)
    stores = _only_top_stores(kernel, launch)
    root = prepare(kernel)
    compares, total = bound_of(kernel, root.name)
    axes, host_total = check_grid(kernel, launch, root, total)
    width, lane, block = root.digits[0].extent, root.digits[0].name, root.block
    assert width is not None and block is not None
    high = root.digits[1]
    closed = high.extent is not None
    rest_count, exact = rows_on_host(kernel, launch, host_total, root.inner(2 if closed else 1))
    if not exact:
        raise NotApplicable("rows do not divide the total")
    height = high.extent or count_rows(total, root)
    host_height = host_value(kernel, launch, parse(height))
    host_width = host_value(kernel, launch, parse(width))
    _unroll_all(kernel, values, rows)
    value = parse(f"min({rows}, {ast.unparse(host_height)})")
    strip = add_constexpr(kernel, launch, "STRIP", value)
    first, step = fresh(kernel, "first"), fresh(kernel, "step")
    program, rest = fresh(kernel, "program"), fresh(kernel, "rest")
    replace_compares(kernel, compares, f"{lane} < {width}")
    head = [
        f"{program} = {root.program}",
        f"{lane} = {program} % (({width} + {block} - 1) // {block}) * {block}"
        f" + tl.arange(0, {block})",
        f"{rest} = {program} // (({width} + {block} - 1) // {block})",
    ]
    strips = f"(({height} + {strip} - 1) // {strip})"
    if closed:
        head.append(f"{first} = tl.minimum({rest} % {strips} * {strip}, {height} - {strip})")
        head.append(f"{rest} = {rest} // {strips}")
        head += digit_lines(root, 2, rest)
        above = " + ".join([_weighted(root, i) for i in range(2, len(root.digits))])
        line = f"({above}) * ({height}) + {high.name}"
    else:
        head.append(f"{first} = tl.minimum({rest} * {strip}, {height} - {strip})")
        line = high.name
    row_lines = [f"{high.name} = {first} + {step}", f"{root.name} = ({line}) * ({width}) + {lane}"]
    _assemble(kernel, root.name, head, row_lines, stores, (step, strip, high.name))
    per_row = f"triton.cdiv({ast.unparse(host_width)}, META['{block}'])"
    per_image = f"triton.cdiv({ast.unparse(host_height)}, META['{strip}'])"
    others = f" * ({ast.unparse(rest_count)})" if closed else ""
    axes[root.axis] = parse(f"{per_row} * {per_image}{others}")
    set_grid(launch, axes)
    set_lanes(kernel, launch, root, values)
    return f"strips of {rows} rows a program in {kernel.name}, loads of shared rows merged"


def _weighted(root: FlatIndex, at: int) -> str:
    """A digit above the row, in rows of images."""
    below = [f"({d.extent})" for d in root.digits[2:at]]
    return " * ".join([root.digits[at].name, *below])


def _only_top_stores(kernel: ast.FunctionDef, launch: Launch) -> list[ast.stmt]:
    """The kernel's stores, all plain last statements, to memory it does not read."""
    stores = [s for s in kernel.body if isinstance(s, ast.Expr) and is_call(s.value, "store")]
    if len(stores) != len(calls(kernel, "store")) or kernel.body[-len(stores) :] != stores:
        raise NotApplicable("stores are not the last statements")
    if any("atomic" in ast.unparse(s) for s in kernel.body):
        raise NotApplicable("atomics")
    check_not_written(kernel, launch)
    return list(stores)


def check_not_written(kernel: ast.FunctionDef, launch: Launch) -> None:
    """Raises NotApplicable where a kernel may read what it writes."""
    if _pointer_arguments(kernel, launch, "load") & _pointer_arguments(kernel, launch, "store"):
        raise NotApplicable("the kernel reads what it writes")


def _pointer_arguments(kernel: ast.FunctionDef, launch: Launch, name: str) -> set[str]:
    """The host's tensors that loads (or stores) start from. Raises NotApplicable."""
    flow = Flow(kernel)
    found = set()
    for call in calls(kernel, name):
        node: ast.expr = flow.inline(call.args[0])
        while isinstance(node, ast.BinOp):
            node = node.left
        given = None
        if isinstance(node, ast.Name) and node.id in flow.parameters:
            given = argument(kernel, launch, node.id)
        if given is None:
            raise NotApplicable("an address that does not start with a parameter")
        found.add(ast.unparse(given))
    return found


def _unroll_all(kernel: ast.FunctionDef, values: dict[str, int], rows: int) -> None:
    """Unroll every loop whole, since equal loads are merged only within one block."""
    copies = rows
    for loop in [n for n in ast.walk(kernel) if isinstance(n, ast.For)]:
        length = loop_length(loop, kernel, values)
        if length is None or length > SHORT:
            raise NotApplicable("a loop that is not short")
        copies *= max(1, length)
        if not is_static(loop):
            make_static(loop)
    if copies == rows or copies > MOST_LOADS:
        raise NotApplicable("no window to share, or too many copies")


def _assemble(
    kernel: ast.FunctionDef,
    index: str,
    head: list[str],
    row_lines: list[str],
    stores: list[ast.stmt],
    names: tuple[str, str, str],
) -> None:
    """Head, then a loop over rows that computes, then one that stores."""
    step, strip, row = names
    at = _definition_of(kernel, index)
    before, body = kernel.body[:at], kernel.body[at + 1 : len(kernel.body) - len(stores)]
    flow = Flow(kernel)
    varying = {row, index}
    fixed = [s for s in body if isinstance(s, ast.Assign) and not _needs(s, varying, flow)]
    fixed = [s for s in fixed if not calls(s, "load", "zeros", "full")]
    gathered: list[ast.stmt] = []
    loop_body = statements("\n".join(row_lines)) + [s for s in body if s not in fixed]
    store_body = statements("\n".join(row_lines))
    inlined = {
        name: value
        for name, value in flow.definitions.items()
        if name not in (row, index) and _needs_name(name, varying, flow)
    }
    for number, statement in enumerate(stores):
        assert isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
        name = fresh(kernel, f"results_{number}" if number else "results")
        gathered += statements(f"{name} = ()")
        value = ast.unparse(statement.value.args[1])
        loop_body += statements(f"{name} = {name} + ({value},)")
        _store_row(statement.value, f"{name}[{step}]", inlined)
        store_body.append(statement)
    loops = []
    for part in (loop_body, store_body):
        loop = statements(f"for {step} in tl.static_range({strip}):\n    pass")[0]
        assert isinstance(loop, ast.For)
        loop.body = part
        loops.append(loop)
    kernel.body = [*before, *statements("\n".join(head)), *fixed, *gathered, *loops]
    drop_unread(kernel)


def _definition_of(kernel: ast.FunctionDef, index: str) -> int:
    """Where the flat index is defined. Raises NotApplicable where that is not at the top."""
    for at, statement in enumerate(kernel.body):
        if isinstance(statement, ast.Assign) and names_in(statement.targets[0]) == {index}:
            return at
    raise NotApplicable("the flat index is not defined at the top")


def _store_row(call: ast.Call, value: str, inlined: dict[str, ast.expr]) -> None:
    """Have a store take this value, at an address and behind a mask that hold no other names.
    Raises NotApplicable where these depend on what is read."""
    call.args[0] = substitute_all(call.args[0], inlined)
    call.args[1] = parse(value)
    parts = [call.args[0]]
    for given in call.keywords:
        if given.arg == "mask":
            given.value = substitute_all(given.value, inlined)
            parts.append(given.value)
    if any(calls(part, "load") for part in parts):
        raise NotApplicable("a store that depends on what is read")


def _needs(statement: ast.stmt, names: set[str], flow: Flow) -> bool:
    return flow.depends(statement, names)


def _needs_name(name: str, names: set[str], flow: Flow) -> bool:
    return bool(flow.closure({name}) & names)


REWRITE = Rewrite(
    "strips",
    (FindingKind.ISSUE_BOUND, FindingKind.EXCESS_TRAFFIC, FindingKind.LATENCY),
    apply,
)

"""A flat index becomes rows, or strips of rows.

Rows: `index % width`, `index // width % height`, … of a flat lane index cost every lane several
dozen instructions. Here a program owns one row, or a tile of rows, of the fastest digit, and what
is left is taken apart once a program.

Strips: several rows a program, each with its own accumulator. After unrolling, the rows' loads
stand in one block, and the compiler merges those of equal address: a window of 3 over 8 rows reads
10 rows instead of 24. The last strip is moved back so that it ends with the image; rows computed
twice are stored twice with the same value.
"""

from __future__ import annotations

import ast

from beamsearch.proposer.playbook.rewrites.digits import (
    FlatIndex,
    definition_at,
    digit_lines,
    drop_unread,
    place,
    prepare,
    replace_compares,
    rows_on_host,
    without,
)
from beamsearch.proposer.playbook.rewrites.flow import Flow, factors, product, substitute_all
from beamsearch.proposer.playbook.rewrites.source import (
    Launch,
    NotApplicable,
    Rewrite,
    calls,
    fresh,
    is_call,
    keyword,
    on_kernel,
    parse,
    statements,
)
from beamsearch.proposer.playbook.rewrites.unroll import (
    MOST_WRITTEN_OUT,
    SHORT,
    is_static,
    loop_length,
    make_static,
)
from kernel_profiling.profile import FindingKind

WIDEST = 1024
"""Lanes of a row block at most; longer rows take several blocks."""
TILE_ROWS = (1, 4, 2, 8)
"""Rows a program: one as scalars, several as an axis of their own."""
STRIP_ROWS = (8, 4, 16, 2)


def _retile(launch: Launch, rows: int) -> str:
    kernel, values = launch.kernel, launch.module.values(launch.kernel.name)
    root = prepare(launch)
    lane, width, block = root.digits[0].name, root.digits[0].extent, root.block
    count, exact = rows_on_host(launch, root, 1)
    host_width = launch.on_host(width)
    tile = launch.add_constexpr("ROWS", f"{rows}") if rows > 1 else ""
    row = fresh(kernel, "row")
    conditions = [f"({lane} < {width})"]
    if tile:
        conditions.append(f"({row} < {count_rows(root)})")
    if not exact:
        conditions.append(f"({root.name} < {root.total})")
    replace_compares(launch, root, " & ".join(conditions))
    program, blocks = fresh(kernel, "program"), fresh(kernel, "blocks")
    lanes, tiled = ("[:, None]", f" * {tile} + tl.arange(0, {tile})[None, :]") if tile else ("", "")
    head = [
        f"{program} = {root.program}",
        f"{blocks} = ({width} + {block} - 1) // {block}",
        f"{lane} = {program} % {blocks} * {block} + tl.arange(0, {block}){lanes}",
        f"{row} = {program} // {blocks}{tiled}",
        *digit_lines(root.digits[1:], row),
        f"{root.name} = {row} * ({width}) + {lane}",
    ]
    place(kernel, root, head)
    if tile:
        _two_axes(kernel, block, tile)
    groups = f"triton.cdiv({count}, META['{tile}'])" if tile else count
    launch.set_axis(root.axis, f"triton.cdiv({host_width}, META['{block}']) * ({groups})")
    set_lanes(launch, root, values, rows)
    what = "one row" if rows == 1 else f"{rows} rows"
    return f"flat index of {kernel.name} taken apart into {what} of {width} a program"


def set_lanes(launch: Launch, root: FlatIndex, values: dict[str, int], rows: int = 1) -> None:
    """A block as wide as a row at the launch, and warps so that a thread has about four elements
    of these rows, where the width is known."""
    width = root.digits[0].extent
    lanes = f"min(triton.next_power_of_2({launch.on_host(width)}), {WIDEST})"
    launch.set_argument(root.block, lanes)
    if length := values.get(width):
        threads = min(1 << (length - 1).bit_length(), WIDEST) * rows // 4
        launch.set_argument("num_warps", f"{max(1, min(8, threads // 32))}")


def count_rows(root: FlatIndex) -> str:
    """Rows as a kernel expression."""
    left = without(factors(parse(root.total)), root.inner(1))
    if left is not None:
        return product(left)
    width = root.digits[0].extent
    return f"(({root.total} + {width} - 1) // ({width}))"


def _two_axes(kernel: ast.FunctionDef, block: str, rows: str) -> None:
    """Accumulators of (block,) become (block, rows).

    Lanes come first: where Triton sees no contiguity (positions a stride apart) it lets the first
    axis run fastest over threads, and rows there would scatter every access (8 rows
    first took 2.8 times as long as one row on an H200).
    """
    for call in calls(kernel, "zeros", "full"):
        match call.args[0]:
            case ast.Tuple([length]) | ast.List([length]):
                if ast.unparse(length) != block:
                    raise NotApplicable("an accumulator of another shape")
                call.args[0] = parse(f"({block}, {rows})")


ROWS = Rewrite(
    "rows",
    (FindingKind.INTEGER_OVERHEAD, FindingKind.ISSUE_BOUND, FindingKind.UNCOALESCED),
    on_kernel(_retile, [(rows,) for rows in TILE_ROWS]),
)


def _strip(launch: Launch, rows: int) -> str:
    kernel, values = launch.kernel, launch.module.values(launch.kernel.name)
    stores = _only_top_stores(launch)
    root = prepare(launch)
    width, lane, block = root.digits[0].extent, root.digits[0].name, root.block
    high, above = root.digits[1], root.digits[2:]
    rest_count, exact = rows_on_host(launch, root, 2 if above else 1)
    if not exact:
        raise NotApplicable("rows do not divide the total")
    height = high.extent or count_rows(root)
    host_height, host_width = launch.on_host(height), launch.on_host(width)
    _unroll_all(kernel, values, rows)
    strip = launch.add_constexpr("STRIP", f"min({rows}, {host_height})")
    first, step = fresh(kernel, "first"), fresh(kernel, "step")
    program, rest = fresh(kernel, "program"), fresh(kernel, "rest")
    replace_compares(launch, root, f"{lane} < {width}")
    blocks, strips = (
        f"(({width} + {block} - 1) // {block})",
        f"(({height} + {strip} - 1) // {strip})",
    )
    number, line = rest, high.name
    if above:
        number = f"{rest} % {strips}"
        digits = [
            " * ".join([digit.name, *(f"({d.extent})" for d in above[:i])])
            for i, digit in enumerate(above)
        ]
        line = f"({' + '.join(digits)}) * ({height}) + {high.name}"
    head = [
        f"{program} = {root.program}",
        f"{lane} = {program} % {blocks} * {block} + tl.arange(0, {block})",
        f"{rest} = {program} // {blocks}",
        f"{first} = tl.minimum({number} * {strip}, {height} - {strip})",
        *([f"{rest} = {rest} // {strips}"] if above else []),
        *digit_lines(above, rest),
    ]
    row = f"{high.name} = {first} + {step}\n{root.name} = ({line}) * ({width}) + {lane}"
    _assemble(kernel, root, head, row, stores, f"for {step} in tl.static_range({strip}):\n    pass")
    others = f" * ({rest_count})" if above else ""
    launch.set_axis(
        root.axis,
        f"triton.cdiv({host_width}, META['{block}'])"
        f" * triton.cdiv({host_height}, META['{strip}']){others}",
    )
    set_lanes(launch, root, values)
    return f"strips of {rows} rows a program in {kernel.name}, loads of shared rows merged"


def _only_top_stores(launch: Launch) -> list[ast.stmt]:
    """The kernel's stores, all plain last statements, to memory it does not read."""
    body = launch.kernel.body
    stores: list[ast.stmt] = [
        s for s in body if isinstance(s, ast.Expr) and is_call(s.value, "store")
    ]
    if len(stores) != len(calls(launch.kernel, "store")) or body[-len(stores) :] != stores:
        raise NotApplicable("stores are not the last statements")
    if any("atomic" in ast.unparse(s) for s in body):
        raise NotApplicable("atomics")
    check_not_written(launch)
    return stores


def check_not_written(launch: Launch) -> None:
    """Raises NotApplicable where a kernel may read what it writes."""
    if _pointer_arguments(launch, "load") & _pointer_arguments(launch, "store"):
        raise NotApplicable("the kernel reads what it writes")


def _pointer_arguments(launch: Launch, name: str) -> set[str]:
    """The host's tensors that loads (or stores) start from. Raises NotApplicable."""
    flow = Flow(launch.kernel)
    found = set()
    for call in calls(launch.kernel, name):
        node: ast.expr = flow.inline(call.args[0])
        while isinstance(node, ast.BinOp):
            node = node.left
        given = None
        if isinstance(node, ast.Name) and node.id in flow.parameters:
            given = launch.argument(node.id)
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
    if copies == rows or copies > MOST_WRITTEN_OUT:
        raise NotApplicable("no window to share, or too many copies")


def _assemble(
    kernel: ast.FunctionDef,
    root: FlatIndex,
    head: list[str],
    row: str,
    stores: list[ast.stmt],
    each_row: str,
) -> None:
    """Head, then a loop over rows that computes, then one that stores."""
    at = definition_at(kernel, root.name)
    before, body = kernel.body[:at], kernel.body[at + 1 : len(kernel.body) - len(stores)]
    flow = Flow(kernel)
    varying = {root.digits[1].name, root.name}
    fixed = [
        s
        for s in body
        if isinstance(s, ast.Assign)
        and not flow.depends(s, varying)
        and not calls(s, "load", "zeros", "full")
    ]
    inlined = {
        name: value
        for name, value in flow.definitions.items()
        if name not in varying and flow.closure({name}) & varying
    }
    (computing,), (storing,) = statements(each_row), statements(each_row)
    assert isinstance(computing, ast.For) and isinstance(storing, ast.For)
    computing.body = [*statements(row), *(s for s in body if s not in fixed)]
    storing.body = statements(row)
    gathered: list[ast.stmt] = []
    for number, store in enumerate(stores):
        assert isinstance(store, ast.Expr) and isinstance(store.value, ast.Call)
        call = store.value
        name = fresh(kernel, f"results_{number}" if number else "results")
        gathered += statements(f"{name} = ()")
        computing.body += statements(f"{name} = {name} + ({ast.unparse(call.args[1])},)")
        call.args[0] = substitute_all(call.args[0], inlined)
        call.args[1] = parse(f"{name}[{ast.unparse(storing.target)}]")
        for given in call.keywords:
            if given.arg == "mask":
                given.value = substitute_all(given.value, inlined)
        if any(calls(part, "load") for part in (call.args[0], keyword(call, "mask")) if part):
            raise NotApplicable("a store that depends on what is read")
        storing.body.append(store)
    kernel.body = [*before, *statements("\n".join(head)), *fixed, *gathered, computing, storing]
    drop_unread(kernel)


STRIPS = Rewrite(
    "strips",
    (FindingKind.ISSUE_BOUND, FindingKind.EXCESS_TRAFFIC, FindingKind.LATENCY),
    on_kernel(_strip, [(rows,) for rows in STRIP_ROWS]),
)

"""A flat index becomes rows: division and remainder move from every lane to scalars.

`index % width`, `index // width % height`, … of a flat lane index cost every lane several dozen
instructions. Here a program owns one row, or a tile of rows, of the fastest digit, and what is left
is taken apart once a program.
"""

from __future__ import annotations

import ast

from beamsearch.proposer.playbook.rewrites.digits import (
    FlatIndex,
    digit_lines,
    place,
    prepare,
    replace_compares,
    rows_on_host,
    without,
)
from beamsearch.proposer.playbook.rewrites.flow import factors, product
from beamsearch.proposer.playbook.rewrites.source import (
    Launch,
    NotApplicable,
    Rewrite,
    calls,
    fresh,
    on_kernel,
    parse,
)
from kernel_profiling.profile import FindingKind

WIDEST = 1024
"""Lanes of a row block at most; longer rows take several blocks."""
TILE_ROWS = (1, 4, 2, 8)
"""Rows a program: one as scalars, several as an axis of their own."""


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


REWRITE = Rewrite(
    "rows",
    (FindingKind.INTEGER_OVERHEAD, FindingKind.ISSUE_BOUND, FindingKind.UNCOALESCED),
    on_kernel(_retile, [(rows,) for rows in TILE_ROWS]),
)

"""A flat index becomes rows: division and remainder move from every lane to scalars.

`index % width`, `index // width % height`, … of a flat lane index cost every lane several dozen
instructions. Here a program owns one row, or a tile of rows, of the fastest digit, and what is left
is taken apart once a program.
"""

from __future__ import annotations

import ast
from functools import partial

from beamsearch.proposer.playbook.rewrites.digits import (
    FlatIndex,
    bound_of,
    check_grid,
    drop_unread,
    find_vector_index,
    rows_on_host,
    take_apart,
    without,
)
from beamsearch.proposer.playbook.rewrites.flow import (
    REDUCTIONS,
    SHAPED,
    Flow,
    factors,
    merge_augmented,
    product,
)
from beamsearch.proposer.playbook.rewrites.hints import Hints
from beamsearch.proposer.playbook.rewrites.interface import Result, Rewrite, attempt_kernel
from beamsearch.proposer.playbook.rewrites.source import (
    Launch,
    Module,
    NotApplicable,
    add_constexpr,
    calls,
    constexprs,
    fresh,
    host_value,
    names_in,
    parse,
    replace,
    set_argument,
    set_grid,
    statements,
)
from kernel_profiling.profile import FindingKind

WIDEST = 1024
"""Lanes of a row block at most; longer rows take several blocks."""
TILE_ROWS = (1, 4, 2, 8)
"""Rows a program: one as scalars, several as an axis of their own."""


def apply(source: str, hints: Hints) -> list[Result]:
    """One row a program, then tiles of several rows."""
    results = []
    for rows in TILE_ROWS:
        results += attempt_kernel(source, partial(_retile, hints, rows))
    return results


def prepare(kernel: ast.FunctionDef) -> FlatIndex:
    """The kernel's flat index, taken apart. Raises NotApplicable."""
    merge_augmented(kernel.body)
    flow = Flow(kernel)
    root = find_vector_index(kernel, flow)
    if root.block not in constexprs(kernel):
        raise NotApplicable("the block is no parameter")
    if calls(kernel, *SHAPED, *REDUCTIONS) or any(
        isinstance(n, ast.Subscript) and "None" in ast.unparse(n.slice) for n in ast.walk(kernel)
    ):
        raise NotApplicable("the kernel uses axes itself")
    bound_of(kernel, root.name)
    take_apart(kernel, root, flow)
    return root


def _retile(
    hints: Hints, rows: int, module: Module, kernel: ast.FunctionDef, launch: Launch
) -> str:
    values = hints.launch_values(module, kernel.name)
    root = prepare(kernel)
    compares, total = bound_of(kernel, root.name)
    axes, host_total = check_grid(kernel, launch, root, total)
    width = root.digits[0].extent
    assert width is not None and root.block is not None
    count, exact = rows_on_host(kernel, launch, host_total, root.inner(1))
    host_width = host_value(kernel, launch, parse(width))
    tile = add_constexpr(kernel, launch, "ROWS", ast.Constant(value=rows)) if rows > 1 else None
    row_count = count_rows(total, root)
    conditions = [f"({root.digits[0].name} < {width})"]
    row = fresh(kernel, "row")
    if tile:
        conditions.append(f"({row} < {row_count})")
    if not exact:
        conditions.append(f"({root.name} < {total})")
    replace_compares(kernel, compares, " & ".join(conditions))
    place(kernel, root, _definitions(kernel, root, row, tile))
    if tile:
        _two_axes(kernel, root.block, tile)
    per_row = f"triton.cdiv({ast.unparse(host_width)}, META['{root.block}'])"
    groups = f"triton.cdiv({ast.unparse(count)}, META['{tile}'])" if tile else ast.unparse(count)
    axes[root.axis] = parse(f"{per_row} * ({groups})")
    set_grid(launch, axes)
    set_lanes(kernel, launch, root, values, rows)
    what = "one row" if rows == 1 else f"{rows} rows"
    return f"flat index of {kernel.name} taken apart into {what} of {width} a program"


def set_lanes(
    kernel: ast.FunctionDef,
    launch: Launch,
    root: FlatIndex,
    values: dict[str, int],
    rows: int = 1,
) -> None:
    """A block as wide as a row at the launch, and warps so that a thread has about four elements
    of these rows, where the width is known."""
    width = root.digits[0].extent
    assert width is not None and root.block is not None
    host_width = ast.unparse(host_value(kernel, launch, parse(width)))
    lanes = parse(f"min(triton.next_power_of_2({host_width}), {WIDEST})")
    set_argument(kernel, launch, root.block, lanes)
    length = values.get(width)
    if length:
        threads = min(1 << (length - 1).bit_length(), WIDEST) * rows // 4
        warps = ast.Constant(value=max(1, min(8, threads // 32)))
        set_argument(kernel, launch, "num_warps", warps)


def count_rows(total: str, root: FlatIndex) -> str:
    """Rows as a kernel expression."""
    left = without(factors(parse(total)), root.inner(1))
    if left is not None:
        return product(left)
    width = root.digits[0].extent
    return f"(({total} + {width} - 1) // ({width}))"


def _definitions(kernel: ast.FunctionDef, root: FlatIndex, row: str, tile: str | None) -> str:
    """Statements that define the digits and the flat index anew."""
    lane, width, block = root.digits[0].name, root.digits[0].extent, root.block
    program, blocks = fresh(kernel, "program"), fresh(kernel, "blocks")
    lines = [
        f"{program} = {root.program}",
        f"{blocks} = ({width} + {block} - 1) // {block}",
    ]
    if tile:
        lines += [
            f"{lane} = {program} % {blocks} * {block} + tl.arange(0, {block})[:, None]",
            f"{row} = {program} // {blocks} * {tile} + tl.arange(0, {tile})[None, :]",
        ]
    else:
        lines += [
            f"{lane} = {program} % {blocks} * {block} + tl.arange(0, {block})",
            f"{row} = {program} // {blocks}",
        ]
    lines += digit_lines(root, 1, row)
    lines.append(f"{root.name} = {row} * ({width}) + {lane}")
    return "\n".join(lines)


def digit_lines(root: FlatIndex, first: int, rest: str) -> list[str]:
    """Definitions of the digits from `first` on, out of what is left of the index."""
    lines = []
    below: list[str] = []
    for digit in root.digits[first:]:
        quotient = f"{rest} // ({' * '.join(below)})" if below else rest
        if digit.extent is None:
            lines.append(f"{digit.name} = {quotient}")
        else:
            lines.append(f"{digit.name} = {quotient} % ({digit.extent})")
            below.append(f"({digit.extent})")
    return lines


def replace_compares(kernel: ast.FunctionDef, compares: list[ast.Compare], text: str) -> None:
    """Put a condition in the place of every one of the compares."""
    replace(kernel, lambda node: parse(text) if node in compares else None)


def place(kernel: ast.FunctionDef, root: FlatIndex, text: str) -> None:
    """Put the new definitions where the flat index was defined; drop what nothing reads."""
    for i, node in enumerate(kernel.body):
        if isinstance(node, ast.Assign) and names_in(node.targets[0]) == {root.name}:
            kernel.body[i : i + 1] = statements(text)
            break
    else:
        raise NotApplicable("the flat index is not defined at the top")
    drop_unread(kernel)


def _two_axes(kernel: ast.FunctionDef, block: str, rows: str) -> None:
    """Accumulators of (block,) become (block, rows).

    Lanes come first: where Triton sees no contiguity (positions a stride apart) it lets the first
    axis run fastest over threads, and rows there would scatter every access (8 rows
    first took 2.8 times as long as one row on an H200).
    """
    for call in calls(kernel, "zeros", "full"):
        shape = call.args[0]
        if isinstance(shape, ast.Tuple | ast.List) and len(shape.elts) == 1:
            if ast.unparse(shape.elts[0]) != block:
                raise NotApplicable("an accumulator of another shape")
            call.args[0] = parse(f"({block}, {rows})")


REWRITE = Rewrite(
    "rows",
    (FindingKind.INTEGER_OVERHEAD, FindingKind.ISSUE_BOUND, FindingKind.UNCOALESCED),
    apply,
)

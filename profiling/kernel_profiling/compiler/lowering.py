"""What Triton made of products and loops, read from its GPU dialect (TTGIR) and said in words."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from kernel_profiling.compiler.ttgir import Dialect

_PRODUCT = re.compile(r"\b(tt\.dot|ttng\.warp_group_dot|ttng\.tc_gen5_mma\w*) ")
_COPY = re.compile(r"\b(ttg\.async_copy_global_to_local|ttng\.async_tma_(?:copy|gather)\w*)\b")
_TYPE = re.compile(r"(tensor|!ttg\.memdesc)<([0-9x]*)x[^,>]+(?:, (#\w+(?:\.\w+)?))?")
_DEPTH = re.compile(r"memdesc_index [^:]*: !ttg\.memdesc<(\d+)x")
MOST_LINES = 4
"""So many lines of products that are alike are told one by one."""


@dataclass
class _Loop:
    """What one turn of a loop does."""

    indent: int
    line: int | None = None
    copies: int = 0
    depth: int = 0
    """Tiles of the deepest buffer that copies go to."""
    loads: list[int | None] = field(default_factory=list)
    """Lines of loads that are waited for."""
    conversions: list[int | None] = field(default_factory=list)
    """Lines at which values change lanes."""
    tiles: list[int | None] = field(default_factory=list)
    """Lines at which values go through shared memory."""
    reductions: int = 0
    is_waiting: bool = False
    """Whether a product is waited for before anything else is done."""

    def told(self) -> str:
        """In words; nothing where there is nothing to tell."""
        parts = []
        if self.copies:
            deep = f" into buffers of {self.depth} tiles" if self.depth else ""
            parts.append(f"asynchronous copies: {self.copies}{deep}")
        parts += _counted(self.loads, "loads that are waited for, not pipelined")
        parts += _counted(self.conversions, "values that change lanes")
        parts += _counted(self.tiles, "tiles that go from registers through shared memory")
        parts += [f"reductions across lanes: {self.reductions}"] if self.reductions else []
        if self.is_waiting:
            parts.append("each product is waited for before the next step")
        where = "a loop" if self.line is None else f"the loop at line {self.line}"
        return f"a turn of {where}: {'; '.join(parts)}" if parts else ""


def lowering(ttgir: str, starts: Mapping[int, int]) -> list[str]:
    """How each product is computed, and what stands in the loops, outermost first.

    `starts`: lines that continue a statement -> its first line. What is not understood is left out.
    """
    dialect = Dialect(ttgir, starts)
    loops: list[_Loop] = []
    products: dict[str, list[int | None]] = {}
    for row, inside in _walk(dialect, loops):
        operation = _PRODUCT.search(row)
        if operation and (how := _product(row, operation[1], dialect)):
            products.setdefault(how, []).append(dialect.line(row))
        if inside is not None:
            _note(row, inside, dialect)
    found = []
    for how, lines in products.items():
        what = f"{len(lines)} products" if len(lines) > 1 else "a product"
        found.append(f"{_where(lines)}{what} of {how}")
    return found + [told for loop in loops if (told := loop.told())]


def _where(lines: list[int | None]) -> str:
    """The lines of what is alike: each, or of many the first and the last."""
    known = sorted({line for line in lines if line is not None})
    if len(known) > MOST_LINES:
        return f"lines {known[0]} to {known[-1]}: "
    return f"line{'s' * (len(known) > 1)} {', '.join(map(str, known))}: " if known else ""


def _walk(dialect: Dialect, loops: list[_Loop]) -> Iterator[tuple[str, _Loop | None]]:
    """Each row with the innermost loop that it is in; fills `loops`."""
    open_: list[_Loop] = []
    for row in dialect.rows:
        indent = len(row) - len(row.lstrip())
        if re.search(r"\bscf\.(for|while)\b", row):
            open_.append(_Loop(indent))
            loops.append(open_[-1])
        elif open_ and indent == open_[-1].indent and row.lstrip().startswith("}"):
            if not row.rstrip().endswith("{"):  # `} do {` of a while
                open_.pop().line = dialect.line(row)
        else:
            yield row, open_[-1] if open_ else None


def _note(row: str, loop: _Loop, dialect: Dialect) -> None:
    """What a row adds to the loop that it is in."""
    line = dialect.line(row)
    if _COPY.search(row):
        loop.copies += 1
    elif match := _DEPTH.search(row):
        loop.depth = max(loop.depth, int(match[1]))
    elif re.search(r"\btt\.load\b.*: tensor<", row):
        loop.loads.append(line)
    elif "ttg.convert_layout" in row and _changes_lanes(row, dialect):
        loop.conversions.append(line)
    elif re.search(r"\bttg\.local_alloc %", row):
        loop.tiles.append(line)
    elif '"tt.reduce"' in row:
        loop.reductions += 1
    elif "warp_group_dot_wait" in row and "pendings = 0" in row:
        loop.is_waiting = True


def _changes_lanes(row: str, dialect: Dialect) -> bool:
    """Whether a change of layout is between a block's and a matrix unit's, or two blocks': others
    mostly rename registers."""
    kinds = []
    for _, _, layout in _TYPE.findall(row.partition(":")[2]):
        name = dialect.aliases.get(layout.removeprefix("#"), layout)
        kinds.append(next((k for k in ("blocked", "mma", "slice", "linear") if k in name), "other"))
    return "blocked" in kinds and len(kinds) == 2


def _product(row: str, operation: str, dialect: Dialect) -> str:
    """Shape, unit and operands of a product; nothing where they cannot be read."""
    types = _TYPE.findall(row.partition(" : ")[2] or row)
    if len(types) < 2:
        return ""
    (a, left, _), (b, right, _), *rest = types
    shape = f"{left.split('x')[0]} x {right.split('x')[-1]} x {left.split('x')[-1]}"
    if operation == "tt.dot":
        layout = dialect.aliases.get(rest[0][2].removeprefix("#"), "") if rest else ""
        if "mma" not in layout:
            return f"{shape} on the ordinary cores, without matrix instructions"
        return f"{shape} by mma instructions, both operands from registers"
    unit = "wgmma" if operation == "ttng.warp_group_dot" else "tcgen05"
    places = ["registers" if kind == "tensor" else "shared memory" for kind in (a, b)]
    from_ = (
        f"both from {places[0]}"
        if len(set(places)) == 1
        else f"a from {places[0]}, b from {places[1]}"
    )
    ahead = ", asynchronous" if "isAsync = true" in row else ""
    return f"{shape} by {unit}{ahead}, {from_}"


def _counted(lines: list[int | None], what: str) -> list[str]:
    if not lines:
        return []
    known = sorted({line for line in lines if line is not None})
    where = f" (line{'s' * (len(known) > 1)} {', '.join(map(str, known))})" if known else ""
    return [f"{what}: {len(lines)}{where}"]

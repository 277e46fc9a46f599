"""How Triton lays a warp's lanes over a block's elements, read from its GPU dialect (TTGIR)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from kernel_profiling.compiler.ttgir import Dialect

_MEMORY = re.compile(
    r"\b(tt\.load|tt\.store|tt\.atomic_rmw|tt\.atomic_cas|ttg\.async_copy_global_to_local)\b"
)
_POINTERS = re.compile(r"tensor<[0-9x]*!tt\.ptr<[^>]*>, (#[^>]*(?:<\{.*?\}>)?)>")
_KINDS = {"tt.store": "store", "tt.atomic_rmw": "atomic", "tt.atomic_cas": "atomic"}


@dataclass(frozen=True)
class LaneLayout:
    """The order of lanes over a block: which dimension they follow, and in what steps."""

    fastest: int
    """Dimension along which lanes follow each other."""
    lane_elements: int
    """Neighbouring elements one lane owns; 0 where all lanes own the same."""


SCALAR = LaneLayout(0, 0)


def access_layouts(ttgir: str, starts: Mapping[int, int]) -> dict[tuple[int, str], LaneLayout]:
    """(source line, load | store | atomic) -> layout of its pointers; the line's first counts.

    `starts`: lines that continue a statement -> its first line.

    A layout that is not understood is left out.
    """
    dialect = Dialect(ttgir, starts)
    found: dict[tuple[int, str], LaneLayout] = {}
    for row in dialect.rows:
        operation = _MEMORY.search(row)
        line = dialect.line(row) if operation else None
        if operation is None or line is None:
            continue
        pointers = _POINTERS.search(row)
        layout = _layout(pointers[1], dialect.aliases) if pointers else SCALAR
        if layout is not None:
            found.setdefault((line, _KINDS.get(operation[1], "load")), layout)
    return found


def _numbers(name: str, text: str) -> list[int]:
    match = re.search(rf"\b{name} = \[([0-9, ]*)\]", text)
    return [int(n) for n in match[1].split(",")] if match and match[1].strip() else []


def _layout(text: str, aliases: dict[str, str]) -> LaneLayout | None:
    shape = _lanes(text, aliases)
    if shape is None:
        return None
    threads, sizes, order = shape
    return next((LaneLayout(d, sizes[d]) for d in order if threads[d] > 1), SCALAR)


def _lanes(text: str, aliases: dict[str, str]) -> tuple[list[int], list[int], list[int]] | None:
    """Lanes and neighbouring elements of a lane by dimension, and dimensions, fastest first."""
    if not text.startswith("#ttg."):
        text = aliases.get(text[1:], "")
    if text.startswith("#ttg.blocked"):
        sizes, threads = _numbers("sizePerThread", text), _numbers("threadsPerWarp", text)
        return threads, sizes, _numbers("order", text)
    parent, removed = re.search(r"parent = (#.*)\}>", text), re.search(r"dim = (\d+)", text)
    if text.startswith("#ttg.slice") and parent and removed:
        whole = _lanes(parent[1], aliases)
        if whole is None:
            return None
        threads, sizes, order = whole
        gone = int(removed[1])
        return (
            threads[:gone] + threads[gone + 1 :],
            sizes[:gone] + sizes[gone + 1 :],
            [d - (d > gone) for d in order if d != gone],
        )
    lanes = re.search(r"lane = \[((?:\[[0-9, ]*\](?:, )?)*)\]", text)
    if not text.startswith("#ttg.linear") or not lanes:
        return None
    rows = re.findall(r"\[([^\]]+)\]", lanes[1])
    return _linear([[int(n) for n in row.split(",")] for row in rows]) if rows else None


def _linear(steps: list[list[int]]) -> tuple[list[int], list[int], list[int]]:
    """The same of a linear layout, from where each bit of the lane's number leads."""
    rank = len(steps[0])
    threads, sizes, order = [1] * rank, [1] * rank, []
    for step in steps:
        for dimension, width in enumerate(step):
            if width:
                if dimension not in order:
                    order.append(dimension)
                    sizes[dimension] = width
                threads[dimension] *= 2
    return threads, sizes, order + [d for d in range(rank) if d not in order]

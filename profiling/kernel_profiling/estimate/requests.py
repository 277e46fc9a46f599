"""What a warp's memory requests touch: the compiler's accesses seen with an interpreted trace."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from kernel_profiling.estimate.traffic import AccessTrace, LaunchTrace, LineAccess
from kernel_profiling.gpus import SECTOR_BYTES
from kernel_profiling.profile import CodeAccess, Launch, LineCounters


def pair_launches(
    launches: Sequence[Launch], trace: AccessTrace | None
) -> list[tuple[Launch, LaunchTrace | None]]:
    """Each launch with its trace: same kernel, grid and configuration, in order."""
    left = list(trace.launches) if trace is not None else []
    pairs: list[tuple[Launch, LaunchTrace | None]] = []
    for launch in launches:
        same = [t for t in left if t.name == launch.name and t.grid == launch.grid and t.lines]
        exact = [t for t in same if t.config == launch.config]
        chosen = next(iter(exact or same), None)
        if chosen is not None:
            left.remove(chosen)
        pairs.append((launch, chosen))
    return pairs


def touched(access: CodeAccess, trace: LaunchTrace | None) -> tuple[float, float]:
    """128-byte lines and sectors one warp request touches, given how lanes lie over the block."""
    seen = _find_line(access, trace)
    if access.lane_elements == 0 or (trace is not None and (seen is None or not seen.patterns)):
        return 1.0, 1.0
    if seen is None:
        return max(1.0, access.bits * 32 / 8 / 128), max(1.0, access.bits * 32 / 8 / SECTOR_BYTES)
    vector = max(1, access.bits // 8 // seen.element_bytes)
    owned = access.lane_elements or vector

    def distance(pattern: Mapping[str, float]) -> tuple[float, ...]:
        return (
            abs(pattern["fastest"] - access.fastest),
            abs(math.log2(pattern["lane_elements"] / owned)),
            abs(math.log2(pattern["vector"] / vector)),
        )

    best = min(seen.patterns, key=lambda pattern: distance(pattern.model_dump()))
    return best.lines, best.sectors


def with_requests(launch: Launch, trace: LaunchTrace | None) -> Launch:
    """The launch with `sectors_per_request` of its lines, and the fewest that these bytes need.

    Only of lines that the trace met with lanes on different elements: for the others the compiler
    alone knows nothing. A static estimate, every instruction of a line counted once.
    """
    if trace is None:
        return launch
    sectors: dict[int, list[tuple[float, float, int]]] = defaultdict(list)
    for region in launch.regions:
        for access in region.accesses:
            seen = _find_line(access, trace)
            if access.kind == "atomic" or access.lane_elements == 0 or not (seen and seen.patterns):
                continue
            ideal = max(1.0, access.bits * 32 / 8 / SECTOR_BYTES)
            sectors[access.line].append((touched(access, trace)[1], ideal, access.count))
    return launch.model_copy(
        update={"lines": [_with_sectors(line, sectors.get(line.line, [])) for line in launch.lines]}
    )


def _with_sectors(line: LineCounters, requests: Sequence[tuple[float, float, int]]) -> LineCounters:
    count = sum(number for *_, number in requests)
    if not count:
        return line
    return line.model_copy(
        update={
            "sectors_per_request": sum(seen * n for seen, _, n in requests) / count,
            "ideal_sectors_per_request": sum(ideal * n for _, ideal, n in requests) / count,
        }
    )


def _find_line(access: CodeAccess, trace: LaunchTrace | None) -> LineAccess | None:
    for line in trace.lines if trace is not None else ():
        if line.line == access.line and line.kind == access.kind:
            return line
    return None

"""What a warp's memory requests touch: the compiler's accesses seen with an interpreted trace."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from kernel_profiling.estimate.traffic import AccessTrace, LaunchTrace, LineAccess, Pattern
from kernel_profiling.gpus import SECTOR_BYTES
from kernel_profiling.profile import CodeAccess, Launch


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
        return max(1.0, access.bits * 32 / 8 / 128), _ideal(access)
    vector = max(1, access.bits // 8 // seen.element_bytes)
    owned = access.lane_elements or vector

    def distance(pattern: Pattern) -> tuple[float, ...]:
        return (
            abs(pattern.fastest - access.fastest),
            abs(math.log2(pattern.lane_elements / owned)),
            abs(math.log2(pattern.vector / vector)),
        )

    best = min(seen.patterns, key=distance)
    return best.lines, best.sectors


def _ideal(access: CodeAccess) -> float:
    """The fewest sectors that a warp's bytes need."""
    return max(1.0, access.bits * 32 / 8 / SECTOR_BYTES)


def with_requests(launch: Launch, trace: LaunchTrace | None) -> Launch:
    """The launch with `sectors_per_request` of its lines, and the fewest that these bytes need.

    Only of lines that the trace met with lanes on different elements: for the others the compiler
    alone knows nothing. A static estimate, every instruction of a line counted once.
    """
    if trace is None:
        return launch
    requests: dict[int, list[CodeAccess]] = defaultdict(list)
    for access in (access for region in launch.regions for access in region.accesses):
        seen = _find_line(access, trace)
        if access.kind != "atomic" and access.lane_elements != 0 and seen and seen.patterns:
            requests[access.line].append(access)
    lines = []
    for line in launch.lines:
        accesses = requests[line.line]
        update: dict[str, float] = {}
        if count := sum(access.count for access in accesses):
            sectors = sum(touched(access, trace)[1] * access.count for access in accesses)
            ideal = sum(_ideal(access) * access.count for access in accesses)
            update["sectors_per_request"] = sectors / count
            update["ideal_sectors_per_request"] = ideal / count
        lines.append(line.model_copy(update=update))
    return launch.model_copy(update={"lines": lines})


def _find_line(access: CodeAccess, trace: LaunchTrace | None) -> LineAccess | None:
    lines = trace.lines if trace is not None else []
    same = (n for n in lines if n.line == access.line and n.kind == access.kind)
    return next(same, None)

"""Which bytes a launch touches, what of it reaches each memory level, and what requests touch."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

from kernel_profiling.gpus import KIB, SECTOR_BYTES, Gpu
from kernel_profiling.profile import AccessKind, CodeAccess, Launch, Record

L1_KIB_PER_SM = {80: 192, 86: 128, 87: 192, 89: 128, 90: 256, 100: 256, 120: 128}
"""KiB of L1 and shared memory together, by compute capability (NVIDIA's tuning guides)."""
L2_SHARE = 0.5
"""Share of the L2 that one launch's data can count on: data reach an SM through the near half of
an L2 that holds some lines in both halves."""


class Pattern(Record):
    """Cost of one warp request where lanes are laid over a block's elements in one way."""

    fastest: int
    """Dimension along which lanes follow each other."""
    lane_elements: int
    """Neighbouring elements one lane owns."""
    vector: int
    """Elements one lane moves with one request."""
    sectors: float
    """32-byte sectors a request touches, mean over requests."""
    lines: float
    """128-byte lines a request touches, mean over requests."""


class LineAccess(Record):
    """What one source line asks of memory, over the whole grid."""

    line: int
    kind: AccessKind
    element_bytes: int
    executions: float
    """Times a program runs this access, mean over programs."""
    elements: float
    """Elements a program's accesses span, masked ones too, mean over programs."""
    active: float
    """Share (0..1) of elements that the mask lets through."""
    patterns: list[Pattern]


class Reuse(Record):
    """Bytes a program asks for again after it touched `distance_bytes` of others (power of two)."""

    distance_bytes: float
    bytes: float


class Neighbour(Record):
    """Bytes of a program that the program `distance` before it (in launch order) touched too."""

    distance: int
    bytes: float


class TensorUse(Record):
    """What a program touches of one tensor, mean over programs, in bytes of distinct sectors."""

    storage_bytes: int
    read_bytes: float
    written_bytes: float
    neighbours: list[Neighbour]
    """Of `read_bytes`, what an earlier program read; the nearest one counts."""


class Moved(Record):
    """Bytes that a launch asks for in one tensor, each as often as it is asked for."""

    storage: int
    """Address of the tensor's memory, which names it."""
    kind: AccessKind
    bytes: float
    error_bytes: float
    """Standard error, where not every program was looked at."""
    most_bytes: float
    """If every program asked for as much as the one that asks for most."""


class Stray(Record):
    """An access outside every tensor, the farthest of its line."""

    line: int
    kind: AccessKind
    distance_bytes: int
    """Past the end of the nearest tensor; negative before its beginning."""


class OutputUse(Record):
    """One tensor that the call returns."""

    storage: int
    bytes: int
    filled: bool
    """Whether torch writes it, beside what launches do."""


class LaunchTrace(Record):
    """One launch, seen through some of its programs."""

    name: str
    grid: tuple[int, int, int]
    config: str | None = None
    """The autotuner's configuration that was traced."""
    lines: list[LineAccess] = []
    loops: dict[int, float] = {}
    """Line of a loop -> its turns in a program, mean over programs."""
    tensors: list[TensorUse] = []
    reuse: list[Reuse] = []
    """A program's repeated reads, mean over programs."""
    moved: list[Moved] | None = None
    """Bytes of all programs by tensor; none where the programs that were looked at cannot tell."""
    strays: list[Stray] = []
    races: list[int] = []
    """Lines that load what another program stored, which may run before or after."""
    follows_data: bool = False
    """Whether whole numbers were read, which may be addresses or decide what is done."""
    failed: str | None = None


class AccessTrace(Record):
    """Every launch of one bound call, as far as the interpreter could follow it."""

    launches: list[LaunchTrace] = []
    outputs: list[OutputUse] = []
    failed: str | None = None
    """Why there is no trace, or only a part of one."""


def launch_traffic(
    trace: LaunchTrace, gpu: Gpu, blocks_per_sm: int, shared_bytes: int = 0
) -> dict[str, float]:
    """Bytes of one launch: asked for by lanes (`registers`), at the L2 (`l2`), at memory (`dram`).

    A program's repeated reads hit the L1 where what all blocks of an SM touched in between fits
    there, else the L2 where what all running blocks touched in between fits, else they go to
    memory. What an earlier program read comes from the L2 where the programs between the two fit.
    Stores go through to the L2 and reach memory once. `dram_read` is the part of `dram` that is
    no store.
    """
    programs = math.prod(trace.grid)
    running = min(programs, gpu.sms * blocks_per_sm)
    capability = max((c for c in L1_KIB_PER_SM if c <= gpu.capability), default=80)
    l1_capacity = max(L1_KIB_PER_SM[capability] * KIB - shared_bytes * blocks_per_sm, 16 * KIB)
    l2_capacity = gpu.l2_bytes * L2_SHARE
    resident = min(blocks_per_sm, -(-programs // gpu.sms))
    asked = sum(item.elements * item.active * item.element_bytes for item in trace.lines)
    first = sum(tensor.read_bytes for tensor in trace.tensors)
    written = sum(tensor.written_bytes for tensor in trace.tensors)
    from_l2 = from_memory = 0.0
    for reuse in trace.reuse:
        if reuse.distance_bytes * resident > l1_capacity:
            from_l2 += reuse.bytes
            if reuse.distance_bytes * running > l2_capacity:
                from_memory += reuse.bytes
    a_program = max(first + written, 1.0)
    read = from_memory * programs
    for tensor in trace.tensors:
        far = sum(
            n.bytes
            for n in tensor.neighbours
            # Programs that run at the same time find each other's data however much they touch.
            if n.distance >= running and n.distance * a_program > l2_capacity
        )
        fresh = (tensor.read_bytes - sum(n.bytes for n in tensor.neighbours)) * programs
        # More than the tensor holds was read before by a program that was not sampled: near, since
        # the likely far ones (a grid row, a grid plane away) are sampled.
        fresh = min(fresh, tensor.storage_bytes) + far * programs
        if tensor.storage_bytes <= l2_capacity:
            fresh = min(fresh, tensor.storage_bytes)
        read += max(fresh, min(tensor.storage_bytes, tensor.read_bytes))
    stored = sum(
        min(tensor.written_bytes * programs, max(tensor.storage_bytes, tensor.written_bytes))
        for tensor in trace.tensors
    )
    return {
        "registers": asked * programs,
        "l2": (first + from_l2 + written) * programs,
        "dram": read + stored,
        "dram_read": read,
    }


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
    seen = find_line(access, trace)
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
        seen = find_line(access, trace)
        plain = access.kind != "atomic" and not access.bulk
        if plain and access.lane_elements != 0 and seen and seen.patterns:
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
        lines.append(line.with_values(**update))
    return launch.with_values(lines=lines)


def find_line(access: CodeAccess, trace: LaunchTrace | None) -> LineAccess | None:
    """What the trace saw of an access's source line."""
    lines = trace.lines if trace is not None else []
    same = (n for n in lines if n.line == access.line and n.kind == access.kind)
    return next(same, None)

"""The analytic time of a call that can't be measured here: what each unit of the GPU has to do.

A launch takes as long as its busiest unit, and a little longer where two are busy at once:

    time = (dram^p + l2^p + l1^p + issue^p + latency^p)^(1/p) + overhead

- `dram`: bytes to and from memory over the datasheet's bandwidth times `dram_share`;
- `l2`: bytes between L2 and the SMs over `l2_bytes_per_clock` an SM;
- `l1`: 128-byte lines that warp requests touch, `line_clocks` each;
- `issue`: warp instructions over four schedulers an SM, weighted by class (`*_clocks`);
- `latency`: a block's batches of loads, one behind the other, each as slow as the farthest level
  its data come from, plus barriers and the block's start, over the blocks an SM holds at once.

What each unit has to do comes from the compiler (instructions by loop, registers, lane layouts)
and from the access trace (turns of loops, lines a request, reuse). The constants are fitted to
measured variants by `tools/fit_model.py`, which also says how well they rank variants of a problem
that the fit has not seen. A modelled time ranks variants of one problem; it is no measurement.
"""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from kernel_profiling.compiler.occupancy import blocks_per_sm
from kernel_profiling.estimate.traffic import (
    AccessTrace,
    LaunchTrace,
    LineAccess,
    find_line,
    launch_traffic,
    pair_launches,
    touched,
    with_requests,
)
from kernel_profiling.gpus import SECTOR_BYTES, Gpu
from kernel_profiling.profile import CodeAccess, CodeRegion, Launch, Profile, Record

COST_CLASSES: dict[str, str] = {
    **{kind: kind for kind in ("integer", "uniform", "movement", "conversion", "float")},
    **{kind: kind for kind in ("special", "matrix", "shared")},
    **dict.fromkeys(("local", "global_load", "global_store", "atomic"), "memory"),
    "predicate": "integer",
    "shuffle": "shared",
}
"""Class of `kernel_profiling.compiler.sass` -> what it costs as; the rest costs as `other`."""


class Constants(Record):
    """What is fitted. Clocks are of an SM at boost clock."""

    dram_share: float = 0.92
    l2_bytes_per_clock: float = 32.0
    line_clocks: float = 1.0
    integer_clocks: float = 1.5
    other_clocks: float = 1.0
    shared_clocks: float = 2.0
    memory_clocks: float = 4.0
    matrix_clocks: float = 16.0
    dram_latency: float = 700.0
    l2_latency: float = 250.0
    l1_latency: float = 40.0
    block_clocks: float = 300.0
    overhead_us: float = 2.0
    power: float = 3.0


FITTED = Constants.model_validate_json(Path(__file__).with_name("time_model.json").read_text())
"""Written by `tools/fit_model.py`; the defaults above are where the fit starts."""
FITTED_TRITON = "3.6"
"""Whose code they were fitted to. Another version's code for the same kernel may come out many
times as slow here; how fast it is was not measured."""


class Work(Record):
    """What one launch asks of the GPU; independent of the constants."""

    blocks: int
    resident: int
    """Blocks an SM holds."""
    dram_bytes: float
    l2_bytes: float
    lane_bytes: float = 0.0
    """Asked for by lanes."""
    l1_lines: float
    """128-byte lines touched by all requests of the launch."""
    l1_sectors: float
    """32-byte sectors touched by them."""
    instructions: dict[str, float]
    """Warp instructions of the launch by cost class."""
    batches: float
    """Batches of loads that a warp waits for, one behind the other."""
    dram_batches: float
    """Of these, the ones that wait for memory."""
    l2_batches: float
    """Of these, the ones that wait for the L2."""
    barriers: float
    """Barriers a warp passes."""


def estimate(profile: Profile, trace: AccessTrace | None, gpu: Gpu) -> Profile:
    """The same profile with `modelled_ms`, `traffic` at every level, and sectors of its lines.

    Without a trace of a launch its loops are taken to run once and its loads to stream, which
    ranks only kernels without loops.
    """
    pairs = pair_launches(profile.launches, trace)
    works = [work_of(launch, seen, gpu) for launch, seen in pairs]
    known = trace is not None and bool(trace.launches)
    traffic = {
        "dram": sum(work.dram_bytes for work in works),
        "l2": sum(work.l2_bytes for work in works),
        "l1": sum(work.l1_sectors for work in works) * SECTOR_BYTES,
        "registers": sum(work.lane_bytes for work in works),
    }
    return profile.with_values(
        modelled_ms=sum(launch_ms(work, gpu) for work in works) or None,
        traffic=traffic if known else {},
        launches=[with_requests(launch, seen) for launch, seen in pairs],
    )


def launch_ms(work: Work, gpu: Gpu, constants: Constants = FITTED) -> float:
    """Time of one launch in milliseconds."""
    return sum(parts_ms(work, gpu, constants)[name] for name in ("busy", "overhead"))


def parts_ms(work: Work, gpu: Gpu, constants: Constants = FITTED) -> dict[str, float]:
    """Milliseconds of each unit alone, `busy` (all together) and `overhead`."""
    c = constants
    per_ms = gpu.boost_clock_mhz * 1e3
    # The last blocks leave SMs idle: half a round of blocks on average.
    rounds = work.blocks / (gpu.sms * work.resident)
    uneven = math.ceil(rounds) / rounds if rounds <= 1 else (rounds + 0.5) / rounds
    busy_sms = gpu.sms / min(uneven, 4.0) if rounds > 1 else min(gpu.sms, work.blocks)
    costs = {
        "integer": c.integer_clocks,
        "float": c.other_clocks,
        "shared": c.shared_clocks,
        "memory": c.memory_clocks,
        "special": 4 * c.other_clocks,  # a quarter of the lanes of the other pipes
        "matrix": c.matrix_clocks,
    }
    issue = sum(n * costs.get(kind, c.other_clocks) for kind, n in work.instructions.items())
    near = work.batches - work.dram_batches - work.l2_batches
    wait = (
        work.dram_batches * c.dram_latency
        + work.l2_batches * c.l2_latency
        + (near + work.barriers) * c.l1_latency
        + c.block_clocks
    )
    parts = {
        "dram": work.dram_bytes / (gpu.bandwidth_gb_s * 1e6 * c.dram_share),
        "l2": work.l2_bytes / (c.l2_bytes_per_clock * busy_sms * per_ms),
        "l1": work.l1_lines * c.line_clocks / (busy_sms * per_ms),
        "issue": issue / (4 * busy_sms * per_ms),
        "latency": max(rounds, 1.0) * wait / per_ms,
    }
    parts["busy"] = sum(part**c.power for part in parts.values()) ** (1 / c.power)
    parts["overhead"] = c.overhead_us / 1e3
    return parts


def work_of(launch: Launch, trace: LaunchTrace | None, gpu: Gpu) -> Work:
    """What one launch asks of the GPU."""
    shared = launch.shared_bytes or 0
    resident = max(blocks_per_sm(gpu, launch.threads, launch.registers or 32, shared)[0], 1)
    blocks = math.prod(launch.grid)
    warps = -(-launch.threads // 32) * blocks
    turns = region_turns(launch.regions, trace, launch.threads)
    runs = list(zip(launch.regions, turns, strict=True))
    instructions: dict[str, float] = defaultdict(float)
    lines = sectors = barriers = 0.0
    for region, count in runs:
        barriers += region.mix.get("barrier", 0) * count
        for kind, number in region.mix.items():
            instructions[COST_CLASSES.get(kind, "other")] += number * count * warps
        for access in region.accesses:
            requests = access.count * count * (blocks if access.bulk else warps)
            lines_touched, sectors_touched = touched(access, trace)
            if access.bulk and (line := find_line(access, trace)):
                size = bulk_elements(access, line, launch.regions) * line.element_bytes
                lines_touched, sectors_touched = size / 128, size / SECTOR_BYTES
            lines += requests * lines_touched
            sectors += requests * sectors_touched
    if trace is None:
        traffic = {"dram": sectors * SECTOR_BYTES, "l2": sectors * SECTOR_BYTES, "registers": 0.0}
        near_dram, near_l2 = 1.0, 1.0
    else:
        traffic = launch_traffic(trace, gpu, resident, shared)
        asked = max(traffic["registers"], 1.0)
        near_dram, near_l2 = traffic["dram_read"] / asked, traffic["l2"] / asked
    past = _past_l1(launch, trace)
    near_l2 += past * max(1.0 - near_l2, 0.0)
    batches = dram_batches = l2_batches = 0.0
    for region, count in runs:
        loads = sum(a.count for a in region.accesses if a.kind != "store")
        if loads:
            # Copies to shared memory are waited for once a turn, as many turns later as there are
            # stages between.
            waits = region.waits or 1 / max(1, (launch.num_stages or 1) - 1)
            # A batch waits for its slowest load: the chance that one goes so far.
            batch = loads / max(waits, 1)
            far = min(1.0, batch * near_dram)
            batches += count * waits
            dram_batches += count * waits * far
            l2_batches += count * waits * max(0.0, min(1.0, batch * near_l2) - far)
    return Work(
        blocks=blocks,
        resident=resident,
        dram_bytes=traffic["dram"],
        l2_bytes=traffic["l2"] + past * max(traffic["registers"] - traffic["l2"], 0.0),
        lane_bytes=traffic["registers"],
        l1_lines=lines,
        l1_sectors=sectors,
        instructions=dict(sorted(instructions.items())),
        batches=batches,
        dram_batches=dram_batches,
        l2_batches=l2_batches,
        barriers=barriers,
    )


def region_turns(
    regions: Sequence[CodeRegion], trace: LaunchTrace | None, threads: int
) -> list[float]:
    """How often a warp runs each region of the code.

    The elements a source line moves in a program, over what one run of its machine instructions
    moves, is how often these ran, however the compiler unrolled the loop. A loop that touches no
    memory runs as often as the source's loop does.
    """
    turns = [1.0] * len(regions)
    if trace is None:
        return turns
    # Where a block has fewer elements than threads, every thread moves one all the same.
    asked = {
        (n.line, n.kind): (max(n.elements, n.executions * threads), n.element_bytes)
        for n in trace.lines
    }
    known = [[a for a in region.accesses if (a.line, a.kind) in asked] for region in regions]
    moved: dict[tuple[int, str], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for index, accesses in enumerate(known):
        for access in accesses:
            place = access.line, access.kind
            each = max(1.0, access.bits / 8 / asked[place][1]) * threads
            if access.bulk and (line := find_line(access, trace)):
                each = bulk_elements(access, line, regions)
                asked[place] = line.elements, line.element_bytes
            moved[place][index > 0] += each * access.count
    for index, region in enumerate(regions[1:], start=1):
        votes: list[tuple[float, int]] = []
        for access in known[index]:
            place = access.line, access.kind
            outside, inside = moved[place]
            votes.append((max(asked[place][0] - outside, 0.0) / inside, access.count))
        if votes:
            # Not the mean: code that runs once may be rotated into a loop, under a predicate.
            turns[index] = statistics.median_high(vote for vote, n in votes for _ in range(n))
        else:
            found = [trace.loops[line] for line in region.lines if line in trace.loops]
            turns[index] = max(found, default=turns[region.parent or 0])
    return turns


def bulk_elements(access: CodeAccess, line: LineAccess, regions: Sequence[CodeRegion]) -> float:
    """Elements that one instruction of a bulk copy moves.

    A block is copied in one piece or in several, as often in each place where its line is compiled
    to: the place with the fewest tells in how many.
    """
    same = [
        a for r in regions for a in r.accesses if (a.line, a.kind) == (access.line, access.kind)
    ]
    pieces = min(a.count for a in same if a.bulk)
    return max(1.0, line.elements / max(line.executions, 1.0) / pieces)


def _past_l1(launch: Launch, trace: LaunchTrace | None) -> float:
    """Share (0..1) of the bytes asked for by loads that go past the L1."""
    if trace is None:
        return 0.0
    lines = {a.line for r in launch.regions for a in r.accesses if a.past_l1 and a.kind == "load"}
    asked = [(line.line in lines, line.elements * line.element_bytes) for line in trace.lines]
    return sum(n for past, n in asked if past) / max(sum(n for _, n in asked), 1.0)

"""What is wrong with a call as a whole: the work it does, and the launches it does it with."""

from __future__ import annotations

import math
from collections import defaultdict

from kernel_profiling.findings.budget import ARITHMETIC, UNITS, Case, known_gpu, line_shares
from kernel_profiling.findings.diagnosis import Diagnosis
from kernel_profiling.profile import FindingKind, Floor, Launch, Profile

AT_FLOOR = 1.05
"""Within this multiple of the floor there is nothing left that a kernel can change: the floor's
own bandwidth is known no better than to a few percent."""
EXCESS = 1.15
"""Excess from here: what a call leaves behind in the L2, and edges, move a counter by 10%."""

EXCESS_PRODUCTS = 1.1
"""The same of products; counted by instruction, they are exact."""


def at_floor(case: Case) -> Diagnosis | None:
    if case.floor is None or not case.time_ms or case.headroom > AT_FLOOR:
        return None
    return Diagnosis(
        FindingKind.AT_FLOOR,
        f"At the floor: {case.headroom:.2f} times the least time of this problem; stop here",
        [
            f"{case.time_ms:.4g} ms against a floor of {case.floor.time_ms:.4g} ms",
            f"bandwidth {case.floor.bandwidth_gb_s:.0f} GB/s ({case.floor.bandwidth_source})",
        ],
        case.headroom,
        "Spend the effort on another kernel.",
        near=True,
    )


def launch_parameters(case: Case) -> Diagnosis | None:
    """For a call whose profile names no fault and which is not at the floor: its launch parameters,
    which no counter judges. Bound: the floor."""
    told = [
        f"{launch.name}: {launch.threads // 32} warps, {launch.registers} registers a thread"
        + (f", num_stages {launch.num_stages}" if launch.num_stages else "")
        for launch in case.profile.launches
        if launch.triton and launch.registers is not None
    ]
    if case.floor is None or not case.time_ms or case.headroom <= AT_FLOOR or not told:
        return None
    return Diagnosis(
        FindingKind.LAUNCH_PARAMETERS,
        f"No counter says what makes it {case.headroom:.2f} times the floor: try other warps, "
        "stages and block sizes",
        told,
        case.headroom,
        "Change the warps, the stages and the block sizes by factors of two, one at a time, then "
        "together; what the compiler makes of each is known once it is timed.",
    )


def excess(case: Case, level: str) -> Diagnosis | None:
    """More bytes at a level than the least. Bound: that level's work in proportion to the bytes.

    Device memory's excess is always said; that of L2 and L1, which caches cause on purpose,
    where the level is what holds the launch back or nearly.
    """
    ratio, floor, launches = case.excess(level), case.floor, case.profile.launches
    if ratio is None or floor is None or ratio < (EXCESS if level == "dram" else 2.0):
        return None
    gain = case.gain({unit: 1 / ratio for unit in ([level, "lsu"] if level == "l1" else [level])})
    name = {"dram": "device memory", "l2": "the L2", "l1": "the L1"}[level]
    moved = case.profile.traffic[level]
    evidence = [f"{moved / 1e9:.3f} GB at {name}; the least is {floor.least_bytes / 1e9:.3f} GB"]
    for way, metric in (("read", "dram_read_bytes"), ("written", "dram_write_bytes")):
        parts = [launch.metrics[metric] for launch in launches if metric in launch.metrics]
        if level == "dram" and len(parts) == len(launches):
            evidence.append(f"{way}: {sum(parts) / 1e9:.3f} GB")
    sectors: dict[int, float] = defaultdict(float)
    copies: dict[int, float] = defaultdict(float)
    for line in (line for launch in launches for line in launch.lines):
        copies[line.line] += line.copies or 0
        if line.sectors_per_request and line.instructions:
            sectors[line.line] += line.sectors_per_request * line.instructions
    copied = sum(launch.metrics.get("tma_read_bytes", 0.0) for launch in launches)
    if level == "l2" and copied > 0.5 * moved:  # no sector is counted where most of it is asked for
        evidence.append(f"{copied / 1e9:.3f} GB of it is read by copies of whole blocks")
        sectors = copies
    return Diagnosis(
        FindingKind.EXCESS_TRAFFIC,
        f"{name[0].upper()}{name[1:]} moves {ratio:.1f} times the least bytes",
        evidence,
        gain,
        "Move every byte once: keep what is read in registers or shared memory until all its "
        "uses are done, fuse passes over the same data, choose tiles whose halo is small, and "
        "order programs so that those that share data run together.",
        [n for n in sorted(sectors, key=lambda number: -sectors[number]) if sectors[n]][:3],
        near=any(budget.is_near(level) for budget in case.budgets),
    )


def idle_matrix_units(case: Case) -> Diagnosis | None:
    """Matrix work on ordinary cores.

    The floor's FLOPs are of products and convolutions only. Where the ordinary cores at their
    peak would need longer for them than memory needs for the least bytes, no kernel without
    matrix instructions comes near the floor. Bound: the arithmetic at the matrix units' rate, and
    device memory as busy as it is.
    """
    floor = case.floor
    own = [launch for launch in case.profile.launches if launch.triton]
    gpu = None if floor is None else known_gpu(floor.gpu)
    if floor is None or gpu is None or not _without_matrix_units(case):
        return None
    rate = gpu.tflops["float32"]
    if floor.flops_rate_tflop_s <= 1.05 * rate:
        return None
    ordinary_ms = floor.flops / rate / 1e9
    if ordinary_ms <= floor.memory_ms:
        return None
    memory_ms = case.profile.traffic.get("dram", 0.0) / (floor.bandwidth_gb_s * 1e6)
    # Without a time, the least that ordinary cores need stands in for it.
    time_ms = case.time_ms or ordinary_ms
    gain = case.cap(time_ms / max(floor.time_ms, memory_ms))
    return Diagnosis(
        FindingKind.IDLE_MATRIX_UNITS,
        f"{floor.flops / 1e9:.3g} GFLOP of matrix work run without matrix units, "
        f"{time_ms / floor.time_ms:.3g} times above the floor",
        [
            "no matrix instruction in the kernel",
            f"ordinary cores need at least {ordinary_ms:.3g} ms for it at their peak; the floor is "
            f"{floor.time_ms:.3g} ms",
            *_busiest(case),
        ],
        gain,
        "Write the sum as products of tiles with tl.dot (for a convolution: outputs and taps "
        "against channels), inputs in the problem's dtype, accumulating in float32.",
        _heaviest(own),
    )


def excess_arithmetic(case: Case) -> Diagnosis | None:
    """Lanes do more arithmetic than the problem's products and convolutions need.

    From twice: a sum's own additions and an epilogue come on top of the products. Only without
    matrix units, whose work is not counted by lane. Bound: all arithmetic, and the operands brought
    for it, in proportion.
    """
    floor, launches = case.floor, case.profile.launches
    done = [n.metrics["lane_flops"] for n in launches if "lane_flops" in n.metrics]
    if floor is None or not floor.flops or len(done) < len(launches):
        return None
    flops = sum(done)
    ratio = flops / floor.flops
    if ratio < 2 or not _without_matrix_units(case):
        return None
    gain = case.gain(dict.fromkeys((*ARITHMETIC, "l1", "lsu"), 1 / ratio))
    cause = _zeros(floor)
    return Diagnosis(
        FindingKind.EXCESS_ARITHMETIC,
        f"{ratio:.1f} times the arithmetic that the problem needs{cause}",
        [
            f"{flops / 1e9:.4g} GFLOP in all lanes; the problem has {floor.flops / 1e9:.4g}",
            *_busiest(case),
        ],
        gain,
        "Find out from the index arithmetic alone which outputs and which terms are not zero; "
        "compute those, in classes with the same terms, and write the rest without computing.",
        _heaviest(launches),
    )


def excess_products(case: Case) -> Diagnosis | None:
    """The matrix units do more than the problem's products and convolutions: tiles beyond its
    sizes, what is masked, zeros.

    From a tenth more, which the ends of large matrices take. Three TF32 products for one of float32
    are what that needs. Bound: the products, and the operands brought for them, in proportion.
    """
    done, ratio = matrix_work(case.profile, case.floor)
    if case.floor is None or ratio is None or ratio < EXCESS_PRODUCTS:
        return None
    return Diagnosis(
        FindingKind.EXCESS_ARITHMETIC,
        f"{ratio:.2f} times the products that the problem needs{_zeros(case.floor)}",
        [
            f"{done / 1e9:.4g} GFLOP on the matrix units; the problem has "
            f"{case.floor.flops / 1e9:.4g}",
            *_busiest(case),
        ],
        case.gain(dict.fromkeys(("matrix", "l1", "lsu"), 1 / ratio)),
        "Find out which tiles reach beyond the problem's sizes, are masked or are zero: tiles of "
        "other sides, two loops for what is whole and what is not, or the small dimension where "
        "the tile's side is smallest.",
        _heaviest(case.profile.launches, "dot("),
    )


def matrix_work(profile: Profile, floor: Floor | None) -> tuple[float, float | None]:
    """FLOP of the matrix units in a call, and how many times the problem's products that is; none
    where one of them is not known, or the call multiplies elsewhere too."""
    known = [n.metrics.get("matrix_flops") for n in profile.launches]
    done = sum(flops or 0.0 for flops in known)
    if floor is None or not (floor.flops and floor.products and done) or None in known:
        return done, None
    return done, done / floor.flops / (3 if floor.products == "float32" else 1)


def _zeros(floor: Floor) -> str:
    zeros = floor.gives_away.zero_outputs if floor.gives_away is not None else 0.0
    return f": {100 * zeros:.0f}% of the outputs are zero whatever the input" if zeros else ""


def _heaviest(launches: list[Launch], word: str = "") -> list[int]:
    """The two lines with the most instructions of the call; of those that hold the word, where any
    does."""
    weights: dict[int, float] = defaultdict(float)
    for launch in launches:
        for line, share in line_shares(launch).items():
            weights[line] += share * (1 if launch.share is None else launch.share)
    held = {n.line for launch in launches for n in launch.lines if word in n.text} & weights.keys()
    return sorted(held or weights, key=lambda line: -weights[line])[:2]


def _without_matrix_units(case: Case) -> bool:
    """Whether the call is known to use none; where a library has half the time, nobody knows."""
    pairs = zip(case.shares, case.profile.launches, strict=True)
    own = [(share, launch) for share, launch in pairs if launch.triton]
    idle = all(launch.matrix_instructions == 0 for _, launch in own)
    return not case.profile.torch_operations and idle and sum(share for share, _ in own) >= 0.5


def _busiest(case: Case) -> list[str]:
    unit, peak = case.budgets[0].busiest, case.budgets[0].peak
    if not case.measured or unit is None or peak is None:
        return []
    return [f"busiest now: {UNITS[unit][0]}, {100 * peak:.0f}%, on work that could go away"]


def tail(case: Case) -> Diagnosis | None:
    """SMs without work. Bound: all of them busy throughout.

    Measured: SM cycles of the launch over those an SM had a warp. Otherwise: rounds of blocks
    needed, over the share of them that is filled. From a tenth, under which launch overhead and
    clocks count as much.
    """
    gains, evidence, lines = {}, [], []
    for index, launch in enumerate(case.profile.launches):
        blocks = math.prod(launch.grid)
        gain = _idle_sms(case, launch, blocks)
        if gain is not None and gain >= 1.1 and launch.triton:
            gains[index] = gain
            lines += [line.line for line in launch.lines if "program_id" in line.text]
            evidence.append(f"{launch.name}: {blocks} blocks of {launch.threads} threads")
    gain = case.call_gain(gains) if gains else 1.0
    return Diagnosis(
        FindingKind.TAIL,
        f"Too few blocks: SMs stand idle {100 * (1 - 1 / gain):.0f}% of the time",
        evidence,
        gain,
        "Split the work into more blocks (smaller tiles, or the reduction split over several "
        "programs), or into a whole multiple of what the GPU runs at once.",
        lines,
    )


def _idle_sms(case: Case, launch: Launch, blocks: int) -> float | None:
    active, elapsed = (launch.metrics.get(f"{which}_cycles") for which in ("active", "elapsed"))
    if active and elapsed:
        return elapsed / active
    gpu = case.gpu
    if case.measured or gpu is None or launch.occupancy is None or not launch.threads:
        return None
    resident = max(1, int(launch.occupancy * gpu.max_warps_per_sm / -(-launch.threads // 32)))
    # Few blocks spread over the SMs one by one, many fill them in rounds.
    slots = gpu.sms if blocks <= gpu.sms * resident else gpu.sms * resident
    return math.ceil(blocks / slots) / (blocks / slots)


def many_launches(case: Case) -> Diagnosis | None:
    """Several launches. Bound: all but the longest gone; their number where times are missing."""
    launches = case.profile.launches
    if len(launches) < 2:
        return None
    timed = case.kernels_ms is not None
    gain = case.cap(1 / max(case.shares) if timed else float(len(launches)))
    return Diagnosis(
        FindingKind.MANY_LAUNCHES,
        f"{len(launches)} launches where one might do",
        [
            f"{launch.name}: {100 * share:.0f}% of the time" if timed else launch.name
            for launch, share in zip(launches, case.shares, strict=True)
        ],
        gain,
        "Fuse them, so that what one writes the next does not have to read back.",
    )


def time_in_libraries(case: Case) -> Diagnosis | None:
    """Time in kernels that are not the candidate's. Bound: they cost nothing.

    A compiler's profile knows that there are some, and not what they take: no bound.
    """
    if case.profile.torch_operations:
        names = ", ".join(case.profile.torch_operations)
        return Diagnosis(
            FindingKind.LIBRARY_TIME,
            f"Work is done in torch operations that are not profiled here: {names}",
            ["their time is missing from every number here"],
            1.0,
            "Do this work in the Triton kernel.",
            near=True,
        )
    pairs = zip(case.profile.launches, case.shares, strict=True)
    library = [(launch, share) for launch, share in pairs if not launch.triton]
    share = sum(part for _, part in library)
    gain = case.cap(1 / max(1 - share, 1e-3))
    return Diagnosis(
        FindingKind.LIBRARY_TIME,
        f"{100 * share:.0f}% of the time is in kernels of a library or the framework",
        [f"{launch.name}: {100 * part:.0f}%" for launch, part in library],
        gain,
        "Do this work in the Triton kernel: copies, casts, fills and sums fold into it.",
    )


def launch_bound(case: Case, time_ms: float | None) -> Diagnosis | None:
    """The call takes longer than its kernels. Bound: the kernels alone. From a fifth of the call,
    since the profiler's and the timer's caches and clocks differ by up to that on small kernels."""
    kernels_ms = case.kernels_ms
    if time_ms is None or not kernels_ms or time_ms < 1.25 * kernels_ms:
        return None
    return Diagnosis(
        FindingKind.LAUNCH_BOUND,
        f"{100 * (1 - kernels_ms / time_ms):.0f}% of the call is spent between kernels",
        [f"call {time_ms:.4g} ms, kernels {kernels_ms:.4g} ms"],
        case.cap(time_ms / kernels_ms),
        "Launch less: fewer kernels, fewer allocations and checks in kernel_function.",
        near=True,
    )

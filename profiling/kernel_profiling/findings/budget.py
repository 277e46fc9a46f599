"""How busy each unit of the GPU is during a launch, and what relieving one of them could give.

The bound used everywhere: a launch takes at least as long as its busiest unit is busy, so work
taken off one unit can make it faster by at most (busiest before) / (busiest after). What the
busiest unit leaves unused, waiting, is bounded apart: 1 / (busiest).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from kernel_profiling.compiler import sass
from kernel_profiling.gpus import UnknownGpu, find_gpu
from kernel_profiling.profile import Floor, Launch, Profile

UNIT_NAMES = {
    "dram": "device memory",
    "l2": "the L2",
    "l1": "the L1 data stage",
    "lsu": "the load/store unit",
    "issue": "instruction issue",
    "alu": "the integer and logic pipe",
    "fma": "the multiply-add pipe",
    "fma_heavy": "the integer half of the multiply-add pipe",
    "special": "the special-function pipe",
    "fp64": "the double precision pipe",
    "uniform": "the uniform pipe",
    "matrix": "the matrix units",
    "atomics": "the atomic units of the L2",
}
_METRICS: dict[str, tuple[str, ...]] = {
    "dram": ("dram_busy",),
    "l2": ("l2_busy", "l2_to_sm_busy", "sm_to_l2_busy"),
    "l1": ("l1_busy", "l1_writeback_busy"),
    "lsu": ("lsu_busy",),
    "issue": ("issue_busy",),
    "alu": ("alu_busy",),
    "fma": ("fma_busy",),
    "fma_heavy": ("fma_heavy_busy",),
    "special": ("special_busy",),
    "fp64": ("fp64_busy",),
    "uniform": ("uniform_busy",),
    "matrix": ("matrix_busy",),
    "atomics": ("atomic_busy",),
}
ARITHMETIC = ("issue", "alu", "fma", "fma_heavy", "special", "fp64", "uniform")
"""Units that work is taken off when instructions go away."""

MEMORY_BOUND = 0.85
"""Share of the time the least-bandwidth transfer takes from which a modelled launch counts as
memory-bound: a well-written streaming kernel reaches 0.9 and more of the measured bandwidth."""

ROUNDS = 16
"""Rounds taken for a loop of unknown length: many enough that what is inside outweighs what is
outside, as in the kernels worth profiling; the exact number hardly moves a share."""


@dataclass
class Budget:
    """Unit -> share (0..1) of the launch's time that the unit is busy; empty where unknown."""

    busy: dict[str, float] = field(default_factory=dict)
    active: float = 1.0
    """Share (0..1) of the SMs that had work, averaged over the launch."""

    @property
    def kept_busy(self) -> float | None:
        """How busy the busiest unit is where there is work: SMs without any are another matter.

        A tenth of the SMs or less idle is the end of any launch and is left as it is.
        """
        if self.peak is None:
            return None
        return self.peak if self.active >= 0.9 else min(1.0, self.peak / self.active)

    @property
    def busiest(self) -> str | None:
        """The unit that is busy longest."""
        return max(self.busy, key=lambda unit: self.busy[unit], default=None)

    @property
    def peak(self) -> float | None:
        """How busy the busiest unit is."""
        return max(self.busy.values(), default=None)

    def after(self, factors: Mapping[str, float]) -> Budget:
        """The budget with each unit's work multiplied by its factor."""
        busy = {unit: share * factors.get(unit, 1.0) for unit, share in self.busy.items()}
        return Budget(busy, self.active)

    def gain(self, factors: Mapping[str, float]) -> float:
        """How many times faster at most, with each unit's work multiplied by its factor.

        Where nothing is known of the units, every unit named is taken for the busiest.
        """
        if not self.busy:
            return 1 / max(*factors.values(), 1e-3)
        before, after = max(self.busy.values()), max(self.after(factors).busy.values())
        return max(1.0, before / max(after, 1e-3))

    def next_limit(self, factors: Mapping[str, float]) -> str | None:
        """What holds the launch back once those factors apply: `the L2, 41% busy`."""
        after = self.after(factors)
        if after.busiest is None:
            return None
        return f"{UNIT_NAMES[after.busiest]} ({100 * after.busy[after.busiest]:.0f}% busy)"


@dataclass
class Case:
    """A profile with what its findings are measured against."""

    profile: Profile
    floor: Floor | None
    time_ms: float | None
    """The call's time: the timer's, else the profiler's durations, else the model's."""
    budgets: list[Budget]
    shares: list[float]
    """Of the call's time, by launch; equal parts where durations are missing."""

    @property
    def measured(self) -> bool:
        """Whether the counters are real."""
        return self.profile.source == "ncu"

    @property
    def headroom(self) -> float:
        """Multiple of the floor: nothing can make the call faster than this; inf if unknown."""
        if self.floor is None or not self.time_ms or not self.floor.time_ms:
            return float("inf")
        return max(1.0, self.time_ms / self.floor.time_ms)

    def call_gain(self, gains: Mapping[int, float]) -> float:
        """The call's bound from bounds of launches (by index): Amdahl's law over their shares."""
        left = sum(share / gains.get(index, 1.0) for index, share in enumerate(self.shares))
        return self.cap(1 / left) if left > 0 else 1.0

    def cap(self, gain: float) -> float:
        """A bound no higher than the multiple of the floor, no lower than 1."""
        return max(1.0, min(gain, self.headroom))


def make_case(profile: Profile, floor: Floor | None, time_ms: float | None) -> Case:
    """Budgets and shares of every launch."""
    durations = [launch.duration_us for launch in profile.launches]
    known = [duration for duration in durations if duration is not None]
    whole = sum(known) / 1e3 if known and len(known) == len(durations) else None
    time = time_ms or whole or profile.modelled_ms
    count = len(profile.launches)
    shares = [
        launch.share if launch.share is not None else 1 / count for launch in profile.launches
    ]
    if profile.source == "ncu":
        budgets = [_measured(launch, floor) for launch in profile.launches]
    else:
        budgets = [_modelled(profile, floor, time)] * count
    return Case(profile, floor, time, budgets, shares)


def _measured(launch: Launch, floor: Floor | None) -> Budget:
    """From the counters: each unit's throughput of its peak.

    Device memory is measured against the floor's bandwidth (what a streaming kernel really
    reaches), since the counter's percentage is of a peak that nothing reaches.
    """
    busy = {}
    for unit, names in _METRICS.items():
        shares = [launch.metrics[name] / 100 for name in names if name in launch.metrics]
        if shares:
            busy[unit] = min(1.0, max(shares))
    moved = dram_bytes(launch)
    if floor is not None and moved is not None and launch.duration_us:
        reachable = moved / (floor.bandwidth_gb_s * 1e3 * launch.duration_us)
        busy["dram"] = min(1.0, max(reachable, busy.get("dram", 0.0)))
    active, elapsed = (launch.metrics.get(f"{which}_cycles") for which in ("active", "elapsed"))
    return Budget(busy, min(1.0, active / elapsed) if active and elapsed else 1.0)


def _modelled(profile: Profile, floor: Floor | None, time_ms: float | None) -> Budget:
    """From modelled traffic and time: memory's share, and the rest to the instructions."""
    moved = profile.traffic.get("dram")
    if floor is None or moved is None or not time_ms:
        return Budget()
    dram = min(1.0, moved / (floor.bandwidth_gb_s * 1e6 * time_ms))
    # Which unit fills the rest is not known; instructions are what source changes can take away.
    instructions = 1.0 if dram < MEMORY_BOUND else dram / 2
    busy = {"dram": dram, **dict.fromkeys(("issue", "alu", "fma"), instructions)}
    try:
        gpu = find_gpu(profile.gpu)
    except UnknownGpu:
        return Budget(busy)
    # An SM moves 128 bytes a clock to or from its L1, on every GPU since Volta.
    rate = 128 * gpu.sms * gpu.boost_clock_mhz * 1e3
    busy["l1"] = min(1.0, profile.traffic.get("l1", 0.0) / rate / time_ms)
    return Budget(busy)


def dram_bytes(launch: Launch) -> float | None:
    """Bytes this launch moved at device memory."""
    read, write = (launch.metrics.get(f"dram_{way}_bytes") for way in ("read", "write"))
    return read + write if read is not None and write is not None else None


def integer_shares(launch: Launch) -> tuple[float, float, float] | None:
    """Integer shares of all instructions, of the ALU pipe's and of the FMA pipe's.

    Executed instructions where they were counted, otherwise static ones weighted by their loops.
    """
    share = launch.metrics.get("integer_share")
    if share is None:
        mix = _weighted_mix(launch)
        whole = sum(mix.values())
        if not whole:
            return None
        share = sum(mix.get(kind, 0) for kind in sass.INDEX_CLASSES) / whole
    alu = launch.metrics.get("alu_integer_share", share)
    return share, alu, launch.metrics.get("fma_integer_share", share)


def line_shares(launch: Launch) -> dict[int, float]:
    """Line -> share of the launch's instructions, executed or static weighted by their loops."""
    if "integer_share" not in launch.metrics and launch.regions:
        weights: dict[int, float] = defaultdict(float)
        for region, weight in zip(launch.regions, _loop_weights(launch), strict=True):
            for line, count in region.lines.items():
                weights[line] += weight * count
        whole = sum(weights.values())
        return {line: weight / whole for line, weight in weights.items()} if whole else {}
    return {
        line.line: line.instruction_share
        for line in launch.lines
        if line.instruction_share is not None
    }


def _weighted_mix(launch: Launch) -> dict[str, float]:
    if not launch.regions:
        return {kind: float(count) for kind, count in launch.instruction_mix.items()}
    mix: dict[str, float] = defaultdict(float)
    for region, weight in zip(launch.regions, _loop_weights(launch), strict=True):
        for kind, count in region.mix.items():
            mix[kind] += weight * count
    return mix


def _loop_weights(launch: Launch) -> list[float]:
    """How often each region runs, taking every loop for one of ROUNDS rounds."""
    weights: list[float] = []
    for region in launch.regions:
        depth, parent = 0, region.parent
        while parent is not None:
            depth, parent = depth + 1, launch.regions[parent].parent
        weights.append(float(ROUNDS**depth))
    return weights


def float32_tflops(gpu: str) -> float | None:
    """Rate of the ordinary cores of this GPU (by name, key or device); None where it is unknown."""
    try:
        return find_gpu(gpu).tflops.get("float32")
    except UnknownGpu:
        return None

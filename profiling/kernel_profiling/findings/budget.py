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
from kernel_profiling.gpus import Gpu, UnknownGpu, find_gpu
from kernel_profiling.profile import Floor, Launch, Profile

UNITS: dict[str, tuple[str, tuple[str, ...]]] = {
    "dram": ("device memory", ("dram_busy",)),
    "l2": ("the L2", ("l2_busy", "l2_to_sm_busy", "sm_to_l2_busy")),
    "l1": ("the L1 data stage", ("l1_busy", "l1_writeback_busy")),
    "lsu": ("the load/store unit", ("lsu_busy",)),
    "issue": ("the warp scheduler", ("issue_busy",)),
    "alu": ("the integer and logic pipe", ("alu_busy",)),
    "fma": ("the multiply-add pipe", ("fma_busy",)),
    "fma_heavy": ("the integer half of the multiply-add pipe", ("fma_heavy_busy",)),
    "special": ("the special-function pipe", ("special_busy",)),
    "fp64": ("the double precision pipe", ("fp64_busy",)),
    "uniform": ("the uniform pipe", ("uniform_busy",)),
    "matrix": ("the matrix units", ("matrix_busy",)),
    "atomics": ("the atomic units of the L2", ("atomic_busy",)),
}
"""Unit -> what it is called, and the metrics of which the highest says how busy it is."""
ARITHMETIC = ("issue", "alu", "fma", "fma_heavy", "special", "fp64", "uniform")
"""Units that work is taken off when instructions go away."""

WAITS = {
    "idle_memory": "memory",
    "idle_barrier": "barriers",
    "idle_shared": "shared memory or the special unit",
    "idle_dependency": "earlier results",
}
"""Metric -> what warps wait for in that share (0..1) of the time, without an instruction begun."""

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
    def busiest(self) -> str | None:
        """The unit that is busy longest."""
        return max(self.busy, key=lambda unit: self.busy[unit], default=None)

    @property
    def peak(self) -> float | None:
        """How busy the busiest unit is."""
        return max(self.busy.values(), default=None)

    @property
    def kept_busy(self) -> float | None:
        """How busy the busiest unit is where there is work: SMs without any are another matter.

        A tenth of the SMs or less idle is the end of any launch and is left as it is.
        """
        if self.peak is None or self.active >= 0.9:
            return self.peak
        return min(1.0, self.peak / self.active)

    def after(self, factors: Mapping[str, float]) -> Budget:
        """The budget with each unit's work multiplied by its factor."""
        busy = {unit: share * factors.get(unit, 1.0) for unit, share in self.busy.items()}
        return Budget(busy, self.active)

    def gain(self, factors: Mapping[str, float]) -> float:
        """How many times faster at most, with each unit's work multiplied by its factor.

        Where nothing is known of the units, every unit named is taken for the busiest.
        """
        before, after = self.peak, self.after(factors).peak
        if before is None or after is None:
            return 1 / max(*factors.values(), 1e-3)
        return max(1.0, before / max(after, 1e-3))

    def gain_without_wait(self, launch: Launch, name: str) -> float:
        """Bound where this wait goes away: its time, and no more than the busiest unit allows."""
        limit = 1 / self.peak if self.peak else float("inf")
        return max(1.0, min(1 / max(1 - launch.metrics.get(name, 0.0), 1e-2), limit))

    def without_instructions(self, share: float, alu: float, fma: float) -> dict[str, float]:
        """What is left for each unit when these shares of its instructions go away."""
        factors = {"issue": 1 - share, "alu": 1 - alu, "fma": 1 - fma, "uniform": 1 - share}
        heavy, both = self.busy.get("fma_heavy"), self.busy.get("fma")
        if heavy and both is not None:
            # Floats go to either half of the pipe, so what is left spreads evenly over both.
            factors["fma_heavy"] = min(1.0, (1 - fma) * both / heavy)
        return factors

    def is_near(self, unit: str) -> bool:
        """Whether this unit is the next to be full: at least 0.6 of the busiest."""
        return self.peak is not None and self.busy.get(unit, 0.0) >= 0.6 * self.peak

    def evidence(self, *units: str | None) -> list[str]:
        """How busy those units are that are known."""
        known = [unit for unit in units if unit is not None and unit in self.busy]
        return [f"{UNITS[unit][0]} is {100 * self.busy[unit]:.0f}% busy" for unit in known]

    def next_limit(self, factors: Mapping[str, float]) -> list[str]:
        """What holds the launch back once those factors apply."""
        after = self.after(factors)
        unit, peak = after.busiest, after.peak
        if unit is None or peak is None:
            return []
        return [f"what holds it back then: {UNITS[unit][0]} ({100 * peak:.0f}% busy)"]


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
    gpu: Gpu | None
    """The profile's, where it is a known one."""
    kernels_ms: float | None
    """The sum of the launches' durations, where all are known."""

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

    def excess(self, level: str) -> float | None:
        """Bytes moved at a level over the least; None where unknown."""
        moved = self.profile.traffic.get(level)
        if moved is None or self.floor is None or not self.floor.least_bytes:
            return None
        return moved / self.floor.least_bytes

    def call_gain(self, gains: Mapping[int, float]) -> float:
        """The call's bound from bounds of launches (by index): Amdahl's law over their shares."""
        left = sum(share / gains.get(index, 1.0) for index, share in enumerate(self.shares))
        return self.cap(1 / left) if left > 0 else 1.0

    def gain(self, factors: Mapping[str, float]) -> float:
        """The call's bound with these factors in every launch."""
        return self.call_gain({i: b.gain(factors) for i, b in enumerate(self.budgets)})

    def cap(self, gain: float) -> float:
        """A bound no higher than the multiple of the floor, no lower than 1."""
        return max(1.0, min(gain, self.headroom))


def make_case(profile: Profile, floor: Floor | None, time_ms: float | None) -> Case:
    """Budgets and shares of every launch."""
    launches = profile.launches
    known = all(launch.duration_us is not None for launch in launches)
    whole = sum(launch.duration_us or 0.0 for launch in launches) / 1e3 if known else None
    time = time_ms or whole or profile.modelled_ms
    gpu = known_gpu(profile.gpu)
    if profile.source == "ncu":
        budgets = [_measured(launch, floor) for launch in launches]
    else:
        budgets = [_modelled(profile, floor, time, gpu)] * len(launches)
    shares = [1 / len(launches) if n.share is None else n.share for n in launches]
    return Case(profile, floor, time, budgets, shares, gpu, whole)


def known_gpu(name: str) -> Gpu | None:
    """The part of this name, key or device; None where it is not in the table."""
    try:
        return find_gpu(name)
    except UnknownGpu:
        return None


def _measured(launch: Launch, floor: Floor | None) -> Budget:
    """From the counters: each unit's throughput of its peak.

    Device memory is measured against the floor's bandwidth (what a streaming kernel really
    reaches), since the counter's percentage is of a peak that nothing reaches.
    """
    metrics = launch.metrics
    busy = {}
    for unit, (_, names) in UNITS.items():
        shares = [metrics[name] / 100 for name in names if name in metrics]
        if shares:
            busy[unit] = min(1.0, max(shares))
    read, written = metrics.get("dram_read_bytes"), metrics.get("dram_write_bytes")
    if floor is not None and read is not None and written is not None and launch.duration_us:
        reachable = (read + written) / (floor.bandwidth_gb_s * 1e3 * launch.duration_us)
        busy["dram"] = min(1.0, max(reachable, busy.get("dram", 0.0)))
    active, elapsed = metrics.get("active_cycles"), metrics.get("elapsed_cycles")
    return Budget(busy, min(1.0, active / elapsed) if active and elapsed else 1.0)


def _modelled(
    profile: Profile, floor: Floor | None, time_ms: float | None, gpu: Gpu | None
) -> Budget:
    """From modelled traffic and time: memory's share, and the rest to the instructions."""
    moved = profile.traffic.get("dram")
    if floor is None or moved is None or not time_ms:
        return Budget()
    dram = min(1.0, moved / (floor.bandwidth_gb_s * 1e6 * time_ms))
    # Which unit fills the rest is not known; instructions are what source changes can take away.
    instructions = 1.0 if dram < MEMORY_BOUND else dram / 2
    busy = {"dram": dram, **dict.fromkeys(("issue", "alu", "fma"), instructions)}
    if gpu is not None:
        # An SM moves 128 bytes a clock to or from its L1, on every GPU since Volta.
        rate = 128 * gpu.sms * gpu.boost_clock_mhz * 1e3
        busy["l1"] = min(1.0, profile.traffic.get("l1", 0.0) / rate / time_ms)
    return Budget(busy)


def integer_shares(launch: Launch) -> tuple[float, float, float] | None:
    """Integer shares of all instructions, of the ALU pipe's and of the FMA pipe's.

    Executed instructions where they were counted, otherwise static ones weighted by their loops.
    """
    share = launch.metrics.get("integer_share")
    if share is None:
        mix: dict[str, float] = defaultdict(float)
        parts = [region.mix for region in launch.regions] or [launch.instruction_mix]
        for part, weight in zip(parts, _loop_weights(launch) or [1.0], strict=True):
            for kind, count in part.items():
                mix[kind] += weight * count
        whole = sum(mix.values())
        if not whole:
            return None
        share = sum(mix[kind] for kind in sass.INDEX_CLASSES) / whole
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
    known = ((line.line, line.instruction_share) for line in launch.lines)
    return {line: share for line, share in known if share is not None}


def _loop_weights(launch: Launch) -> list[float]:
    """How often each region runs, taking every loop for one of ROUNDS rounds."""
    weights: list[float] = []
    for region in launch.regions:  # a loop comes after the region around it
        weights.append(1.0 if region.parent is None else ROUNDS * weights[region.parent])
    return weights

"""A profile in the words a prompt uses: traffic, products, launches, what the compiler made."""

from __future__ import annotations

import re

from beamsearch.proposer.prompts.wording import one_line, size
from kernel_profiling.compiler.occupancy import limits_per_sm
from kernel_profiling.findings.budget import UNITS, WAITS, Budget, make_case
from kernel_profiling.findings.whole_call import matrix_work
from kernel_profiling.gpus import GPUS, Gpu, UnknownGpu, find_gpu
from kernel_profiling.profile import Floor, Launch, Profile

LAUNCHES = 6
"""Launches listed, by share of the call; a call with more has a finding that says so."""
BUSIEST = 3
"""Units of a launch that are told, device memory, and the matrix units wherever they are used."""
WAITED = 0.05
"""Share of the time from which a wait is told."""
LOWERED = 8
"""Facts on products and loops."""
CONFIGURATIONS = 6
"""Of an autotuner's, the fastest."""
SMALL_LAUNCH = 0.02
"""Share of the call below which a launch is told in short."""
LEVELS = {"dram": "DRAM", "l2": "L2", "l1": "L1", "registers": "registers"}
L2_WAYS = {
    "l2_to_sm_busy": " (way out: loads)",
    "sm_to_l2_busy": " (way in: stores, requests)",
}
"""What it is that makes the L2 busy, where it is not looking up sectors."""
_UNSET = re.compile(r",? ?\b(num_ctas: 1|maxnreg: None)\b")
"""Parts of an autotuner's configuration that say nothing."""


def profiled(profile: Profile | None, floor: Floor | None) -> list[str]:
    """Traffic and launches, a line each."""
    if profile is None:
        return []
    case = make_case(profile, floor, None)
    pairs = zip(profile.launches, case.budgets, strict=True)
    shown = sorted(pairs, key=lambda pair: -(pair[0].share or 0))[:LAUNCHES]
    lines = [_traffic(profile, floor), *_products(profile, floor)]
    part = part_of(profile.gpu)
    for launch, budget in shown:
        busy = _busy(budget, launch) if case.measured else ""
        lines.append(_launch(launch, part, busy))
    told = list({fact: None for launch, _ in shown for fact in launch.lowering})
    if told:
        more = f" And {len(told) - LOWERED} facts more" if len(told) > LOWERED else ""
        lines.append(f"The compiler made of it: {'. '.join(told[:LOWERED])}.{more}")
    if len(profile.launches) > LAUNCHES:
        lines.append(f"{len(profile.launches) - LAUNCHES} smaller launches besides.")
    return lines + _configurations(profile)


def _traffic(profile: Profile, floor: Floor | None) -> str:
    tilde = "~" if profile.source == "compiler" else ""
    rates = {"dram": floor.bandwidth_gb_s} if floor else {}
    rates |= {"l2": floor.costs.l2_gb_s} if floor and floor.costs else {}
    parts = []
    for level, name in LEVELS.items():
        moved = profile.traffic.get(level)
        if moved is None:
            continue
        least = floor.least_bytes if floor else 0
        multiple = f", {tilde}{moved / least:.3g} times the least" if least else ""
        takes = f" (takes {tilde}{moved / rates[level] / 1e6:.3g} ms)" if level in rates else ""
        parts.append(f"{name} {tilde}{size(moved)}{multiple}{takes}")
    missing = [name for level, name in LEVELS.items() if level not in profile.traffic]
    if missing:
        parts.append(f"{', '.join(missing)} missing")
    copied = any(launch.metrics.get("tma_read_bytes") for launch in profile.launches)
    note = " Copies of blocks by descriptors do not count at the L1." if copied else ""
    return f"Traffic of one call: {'; '.join(parts)}.{note}"


def _products(profile: Profile, floor: Floor | None) -> list[str]:
    """What the matrix units did, where that is known."""
    done, ratio = matrix_work(profile, floor)
    if ratio is None:
        return []
    times = f"{ratio:.3g} times the problem's"
    return [f"Products of one call: {done / 1e9:.4g} GFLOP on the matrix units, {times}."]


def _configurations(profile: Profile) -> list[str]:
    """What the autotuners chose from, in a line."""
    told = []
    for one in profile.configurations[:CONFIGURATIONS]:
        parts = [f"{one.registers} registers"] if one.registers is not None else []
        parts += [f"{one.spill_bytes} bytes spilled"] if one.spill_bytes else []
        parts += [f"{size(one.shared_bytes)} shared"] if one.shared_bytes else []
        time = f"{one.time_ms:.4g} ms" if one.time_ms is not None else "not timed"
        told.append(f"{one_line(_UNSET.sub('', one.config), 200)}: {time} ({', '.join(parts)})")
    more = len(profile.configurations) - len(told)
    left = f"; and {more} slower" if more else ""
    return [f"The autotuner's configurations: {'; '.join(told)}{left}."] if told else []


def _launch(launch: Launch, part: Gpu | None, busy: str) -> str:
    x, y, z = launch.grid
    grid = " x ".join(str(n) for n in ((x, y, z) if z > 1 else (x, y) if y > 1 else (x,)))
    parts = [f"{grid} programs of {launch.threads} threads"]
    kind = "Launch" if launch.triton else "Library launch"
    name = f"{kind} `{one_line(launch.name, 80)}`"
    if launch.share is not None and launch.share < SMALL_LAUNCH:
        time = f", {launch.duration_us / 1e3:.4g} ms" if launch.duration_us is not None else ""
        return f"{name}: {parts[0]}{time}, {launch.share:.1%} of the call."
    told: list[tuple[float | str | None, str]] = [
        (launch.duration_us, f"{(launch.duration_us or 0) / 1e3:.4g} ms"),
        (launch.share, f"{launch.share or 0:.0%} of the call"),
        (launch.registers, f"{launch.registers} registers a thread"),
        (launch.spill_bytes or None, f"{launch.spill_bytes} bytes a thread spilled"),
        (launch.shared_bytes or None, f"{size(launch.shared_bytes or 0)} of shared memory"),
        (launch.occupancy, f"occupancy {launch.occupancy or 0:.0%}{_limits(launch, part)}"),
        (launch.load_bits, _width("load", launch.load_bits)),
        (launch.store_bits, _width("store", launch.store_bits)),
        (launch.num_stages, f"num_stages {launch.num_stages}"),
        (launch.config, f"the autotuner's choice {launch.config}"),
    ]
    parts += [text for value, text in told if value is not None]
    if launch.matrix_instructions is not None:
        parts.append("matrix units used" if launch.matrix_instructions else "matrix units idle")
    return f"{name}: {', '.join(parts)}.{busy}"


def _limits(launch: Launch, part: Gpu | None) -> str:
    """How many programs an SM has room for, by what limits them; the limiter's name alone where the
    GPU is not known."""
    if part is None or launch.registers is None:
        return f" (limited by {launch.occupancy_limiter})" if launch.occupancy_limiter else ""
    shared = launch.shared_bytes or 0
    limits = limits_per_sm(part, launch.threads, launch.registers, shared)
    room = sorted((count, name) for name, count in limits.items() if name != "blocks")
    told = ", ".join(f"{count} by {name}" for count, name in room)
    return f" (an SM takes {told})"


def _width(way: str, bits: int | None) -> str:
    """How wide a launch's accesses are; of copies of blocks no thread has a part."""
    return f"widest {way} {bits} bits" if bits else f"every {way} a copy of a block"


def _busy(budget: Budget, launch: Launch) -> str:
    """How busy a launch's units are and what its warps wait for; nothing where neither is known."""
    busiest = sorted(budget.busy, key=lambda unit: -budget.busy[unit])
    told = busiest[:BUSIEST]
    always = {"dram": True, "matrix": bool(launch.matrix_instructions)}
    told += [unit for unit in busiest[BUSIEST:] if always.get(unit)]
    waits = {name: launch.metrics.get(name, 0.0) for name in WAITS}
    nothing = [f"{share:.0%} for {WAITS[n]}" for n, share in waits.items() if share >= WAITED]
    idle = f"; waiting {', '.join(nothing)}" if nothing else ""
    units = ", ".join(
        f"{UNITS[unit][0]} {budget.busy[unit]:.0%}{_way(unit, launch)}" for unit in told
    )
    return f" Busy: {units}{idle}." if units else ""


def _way(unit: str, launch: Launch) -> str:
    """Of the L2, with what it is busy."""
    metrics = UNITS[unit][1]
    return L2_WAYS.get(max(metrics, key=lambda metric: launch.metrics.get(metric, 0.0)), "")


def part_of(name: str) -> Gpu | None:
    """The part with this device name, key, or own name; None where it is not in the table."""
    for part in GPUS.values():
        if name == part.name:
            return part
    try:
        return find_gpu(name)
    except UnknownGpu:
        return None

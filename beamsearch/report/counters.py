"""Two kernels' counters side by side, without those that say nothing of either."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from kernel_profiling.compiler.statements import assembly_lines
from kernel_profiling.findings.budget import WAITS
from kernel_profiling.ncu.metrics import METRICS
from kernel_profiling.profile import FindingKind, Launch, Profile

TRAFFIC = {
    "dram": "between the L2 and device memory",
    "l2": "between the SMs and the L2",
    "l1": "global loads and stores of threads; bulk copies of the copy engine are not in it",
    "registers": "loaded into registers or copied to shared memory, and stored",
}
"""What a call moves at each level."""
OF_LAUNCH = {
    "registers": ("register", "a thread"),
    "spill_bytes": ("byte", "spilled, a thread"),
    "shared_bytes": ("byte", "of shared memory, a program"),
    "occupancy": ("share", "of an SM's warps that fit (0 to 1)"),
    "load_bits": ("bit", "the widest global load of a thread"),
    "store_bits": ("bit", "the widest global store of a thread"),
    "matrix_instructions": ("instruction", "of the matrix units, in the code"),
}
LEVELS = {
    "dram": "device memory moves",
    "l2": "the L2 moves",
    "l1": "the L1 moves, bulk copies aside,",
}
BUSY = {
    "achieved_occupancy": "of the warps that an SM can hold",
    "issue_busy": "issue slots used",
    "matrix_busy": "matrix units busy",
    "dram_busy": "device memory busy, of its theoretical peak",
}
"""What is told of the longest launches of two kernels."""
PER_ISSUE = "stall_"
"""Counters of warps that wait, per issue: left out where the same is known as a share of time."""
MEASURED_BY: dict[str, tuple[str, str]] = {
    FindingKind.OCCUPANCY: ("achieved_occupancy", "% of an SM's warps"),
    FindingKind.LATENCY: ("idle_memory", "% of the time waiting for memory"),
    FindingKind.SYNCHRONISATION: ("idle_barrier", "% of the time waiting at barriers"),
    FindingKind.UNCOALESCED: ("sectors_over_ideal", " times the sectors needed"),
    FindingKind.IDLE_MATRIX_UNITS: ("matrix_busy", "% matrix units busy"),
    FindingKind.ISSUE_BOUND: ("issue_busy", "% of the issue slots"),
    FindingKind.INTEGER_OVERHEAD: ("integer_share", "% integer instructions"),
    FindingKind.EXCESS_ARITHMETIC: ("instructions", " warp instructions"),
    FindingKind.DIVERGENCE: ("lanes_on", " lanes of 32 on"),
    FindingKind.BANK_CONFLICTS: ("bank_conflicts", " bank conflicts"),
    FindingKind.ATOMICS: ("atomic_busy", "% atomic units busy"),
    FindingKind.TAIL: ("waves", " waves of programs"),
    FindingKind.NARROW_ACCESS: ("load_bits", " bits a load"),
    FindingKind.SPILLS: ("spill_bytes", " bytes spilled"),
}
"""Finding -> what shows it of the longest launch, a counter or a field of its own, and the unit
behind its value."""
LEAST_CONFLICTS = 0.1
"""Of the passes through shared memory, the share of conflicts from which they are told."""
LEAST_BUSY = 10.0
"""Percent; what is less busy in both says little."""
LEAST_WAIT = 3.0
"""Percent of the time by which waiting has to change to be told."""
CLEARLY = 0.05
"""A difference below this share is not told."""
LARGE = {1e9: "G", 1e6: "M"}
OF_LARGE = {"byte": "B", "Hz": "Hz"}
"""Units that are told in thousands of millions and in millions."""
LEAST_SHARE = 1.0
"""Percent; a share below it in both kernels says nothing of either."""
MOST_REASONS = 3
LEAST_REASON = 0.1
"""Of what the warps at a line wait for: how many are told, and from which share on."""


class Row(NamedTuple):
    """A counter: its values in the two kernels, empty where it has none, and their ratio."""

    name: str
    told: str
    """Unit and meaning."""
    before: str
    after: str
    ratio: str


def counters(before: Profile | None, after: Profile | None) -> list[Row]:
    """Those of the two kernels' largest launches; traffic is of the whole call."""
    rows = []
    for level, told in TRAFFIC.items():
        pair = [p.traffic.get(level) if p else None for p in (before, after)]
        rows += _row(f"traffic at {level}", "byte", told, pair)
    longest = [largest(profile) for profile in (before, after)]
    for name, (unit, told) in OF_LAUNCH.items():
        pair = [getattr(launch, name) if launch else None for launch in longest]
        rows += _row(name.replace("_", " "), unit, told, pair)
    has_matrix = any(launch and launch.matrix_instructions != 0 for launch in longest)
    shares = _waiting_rows(longest)
    for metric in METRICS:
        pair = [launch.metrics.get(metric.name) if launch else None for launch in longest]
        is_small = metric.unit == "%" and all((value or 0) < LEAST_SHARE for value in pair)
        if is_small or (metric.name == "matrix_busy" and not has_matrix):
            continue
        if not (shares and metric.name.startswith(PER_ISSUE)):
            rows += _row(metric.name.replace("_", " "), metric.unit, metric.meaning, pair)
    return rows + shares


def _waiting_rows(longest: Sequence[Launch | None]) -> list[Row]:
    """What warps wait for, in percent of the time; nothing where that was not counted."""
    rows = []
    for name, what in WAITS.items():
        pair = [launch.metrics.get(name) if launch else None for launch in longest]
        told = f"of the time no instruction begins because warps wait for {what}"
        rows += _row(f"wait for {what}", "%", told, [v and 100 * v for v in pair])
    return rows


def waits(launch: Launch) -> list[tuple[str, float]]:
    """What its warps wait for and in which share (0..1) of the time, the longest first."""
    known = [(what, launch.metrics.get(name, 0.0)) for name, what in WAITS.items()]
    return sorted(
        [(what, share) for what, share in known if share >= LEAST_SHARE / 100],
        key=lambda item: -item[1],
    )


def bank_conflicts(launch: Launch, other: Launch | None) -> str:
    """A sentence where passes through shared memory are repeated because lanes meet in a bank;
    `other` is the input kernel's launch."""

    def share(of: Launch | None) -> float | None:
        passes = of.metrics.get("shared_wavefronts") if of else None
        return of.metrics.get("bank_conflicts", 0.0) / passes if of and passes else None

    own, its = share(launch), share(other)
    if own is None or own < LEAST_CONFLICTS:
        return ""
    beside = f" (in the input kernel {its:.0%})" if its is not None else ""
    return f"{own:.0%} of its passes through shared memory are bank conflicts{beside}."


def finding_measured(kind: str, before: Profile | None, after: Profile | None) -> str:
    """`12% of an SM's warps, now 30%`: what shows a finding, in two kernels; empty where nothing
    does, or a profile lacks it."""
    if kind == FindingKind.EXCESS_TRAFFIC and before is not None and after is not None:
        return "; ".join(told for told in changed(before, after) if " moves " in told) or "the same"
    measured = _measured(kind, before, after)
    if measured is None:
        return ""
    percent = "%" if measured.unit.startswith("%") else ""
    return f"{measured.was}{measured.unit}, now {measured.now}{percent}"


def is_unchanged(kind: str, before: Profile | None, after: Profile | None) -> bool:
    """Whether `finding_measured` tells the same number twice."""
    measured = _measured(kind, before, after)
    return measured is not None and measured.was == measured.now


class _Measured(NamedTuple):
    """A number in two kernels, as it is told, and the unit behind it."""

    was: str
    now: str
    unit: str


def _measured(kind: str, before: Profile | None, after: Profile | None) -> _Measured | None:
    if before is None or after is None:
        return None
    if kind == FindingKind.MANY_LAUNCHES:
        return _Measured(f"{len(before.launches)}", f"{len(after.launches)}", " launches")
    if kind == FindingKind.EXCESS_ARITHMETIC and (flops := _matrix_flops(before, after)):
        was, now = (f"{each / 1e9:,.0f}" for each in flops)
        return _Measured(was, now, " GFLOP in the matrix units")
    name, unit = MEASURED_BY.get(kind, ("", ""))
    known = [
        launch.metrics.get(name, getattr(launch, name, None)) if name and launch else None
        for launch in (largest(before), largest(after))
    ]
    scale = 100 if name.startswith(("idle_", "integer_")) else 1
    told = [_short(value * scale, unit) for value in known if value is not None]
    return _Measured(told[0], told[1], unit) if len(told) == 2 else None


def _matrix_flops(*profiles: Profile) -> list[float]:
    """Those of each call; nothing where one is not known, or has none."""
    found = [
        sum(launch.metrics.get("matrix_flops") or 0.0 for launch in profile.launches)
        for profile in profiles
    ]
    return found if all(found) else []


def _short(value: float, unit: str) -> str:
    return f"{value:.0f}" if unit.startswith("%") else _number(value)


def changed(before: Profile | None, after: Profile | None, about: str = "") -> list[str]:
    """What differs clearly between two kernels: bytes that a call moves at each level, launches,
    and of their longest launches the time, the registers and how busy it keeps units and slots.
    `about`: the sign of a modelled time."""
    if before is None or after is None:
        return []
    told = []
    for level, where in LEVELS.items():
        was, now = (p.traffic.get(level) for p in (before, after))
        if was is not None and now is not None and _differ(was, now):
            told.append(f"{where} {was / 1e9:.3g} GB, now {now / 1e9:.3g} GB")
    counts = [len(p.launches) for p in (before, after)]
    if counts[0] != counts[1]:
        told.append(f"launches {counts[0]}, now {counts[1]}")
    one, other = largest(before), largest(after)
    longest = _changed_in(one, other, about) if one and other else []
    return told + [f"in the longest launch {', '.join(longest)}"] * bool(longest)


def _changed_in(one: Launch, other: Launch, about: str) -> list[str]:
    longest = []
    times = [launch.duration_us for launch in (one, other)]
    if times[0] and times[1] and _differ(times[0], times[1]):
        longest.append(f"{about}{times[0] / 1e3:.4g} ms, now {about}{times[1] / 1e3:.4g} ms")
    if one.registers and other.registers and _differ(one.registers, other.registers):
        longest.append(f"registers a thread {one.registers}, now {other.registers}")
    for name, what in BUSY.items():
        was, now = (launch.metrics.get(name) for launch in (one, other))
        if was is None or now is None or max(was, now) < LEAST_BUSY:
            continue
        if _differ(was, now):
            longest.append(f"{what} {was:.0f}%, now {now:.0f}%")
    for name, what in WAITS.items():
        was, now = (launch.metrics.get(name) for launch in (one, other))
        if was is not None and now is not None and 100 * abs(was - now) >= LEAST_WAIT:
            longest.append(f"waits for {what} {was:.0%} of the time, now {now:.0%}")
    return longest


def _differ(one: float, other: float) -> bool:
    return max(one, other) > (1 + CLEARLY) * min(one, other)


def scope(before: Profile | None, after: Profile | None) -> str:
    """What the rows are counted over, where that is not the same for all of them."""
    many = [p for p in (before, after) if p and len(p.launches) > 1]
    if not many:
        return ""
    names = [launch.name for p in (before, after) if (launch := largest(p)) is not None]
    return "traffic is of the whole call, the rest of its longest launch: " + " and ".join(
        dict.fromkeys(names)
    )


def largest(profile: Profile | None) -> Launch | None:
    """The launch that takes most of a call's time."""
    launches = profile.launches if profile else []
    return max(launches, key=lambda launch: launch.share or 0, default=None)


def _row(name: str, unit: str, told: str, pair: Sequence[float | None]) -> list[Row]:
    """Nothing where both are zero or absent. Units of `OF_LARGE` are told by size."""
    if not any(pair):
        return []
    top = max(value or 0 for value in pair) if unit in OF_LARGE else 0
    scale = next((scale for scale in LARGE if top >= scale), 1.0)
    large = f"{LARGE[scale]}{OF_LARGE[unit]}" if scale > 1 else unit
    texts = ["" if value is None else _number(value / scale) for value in pair]
    before, after = pair
    ratio = f"{after / before:.3g}" if before and after is not None else ""
    return [Row(name, f"{large}: {told}", texts[0], texts[1], ratio)]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1e4 else f"{value:.4g}"


def hottest(profile: Profile | None, source: str, count: int = 4) -> str:
    """The lines of the source with the most stalls in a call, what their warps wait for, and which
    of them are inline assembly; empty where no line has a share worth telling."""
    shares: dict[int, float] = defaultdict(float)
    waits: dict[int, Counter[str]] = defaultdict(Counter)
    for launch in profile.launches if profile else []:
        for seen in launch.lines:
            of_call = (seen.stall_share or 0.0) * (launch.share or 0.0)
            shares[seen.line] += of_call
            waits[seen.line].update({n: of_call * r for n, r in seen.stall_reasons.items()})
    worst = sorted(shares, key=lambda line: -shares[line])[:count]
    worst = [line for line in worst if shares[line] >= LEAST_SHARE / 100]
    if not worst:
        return ""
    told = []
    for line in worst:
        reasons = [(name, r / shares[line]) for name, r in waits[line].most_common(MOST_REASONS)]
        named = ", ".join(f"{name} {r:.0%}" for name, r in reasons if r >= LEAST_REASON)
        told.append(f"line {line} ({shares[line]:.0%}{f': {named}' if named else ''})")
    inside = [line for line in worst if line in assembly_lines(source)]
    assembly = (
        f" Line {' and '.join(map(str, inside))} stand{'s' if len(inside) == 1 else ''} for inline "
        "assembly: a profile counts all of its instructions there, whatever they are."
    )
    return f"Most of the stalls are on {', '.join(told)}.{assembly if inside else ''}"


def below_least(profile: Profile | None, least_bytes: int) -> str:
    """Why less was measured at device memory than must be moved; empty where it was not."""
    moved = profile.traffic.get("dram") if profile and profile.source == "ncu" else None
    if moved is None or moved >= least_bytes:
        return ""
    return (
        f"{moved / 1e9:.3f} GB at device memory are less than the least bytes, "
        f"{least_bytes / 1e9:.3f} GB: what is still in the L2 as the call ends is not counted."
    )

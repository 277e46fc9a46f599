"""What one launch does wrong: each function looks for one thing and bounds what it costs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from profiling.budget import ARITHMETIC, UNIT_NAMES, Budget, Case, integer_shares
from profiling.profile import FindingKind, Launch, LineCounters

VECTOR_BITS = 128
"""Widest access of one lane on every GPU before Blackwell; four words."""
WORD_BITS = 32
"""Up to one word a lane, a warp's access fills no more than one 128-byte line."""


@dataclass(frozen=True)
class Diagnosis:
    """A finding about one launch, its bound still that launch's alone."""

    kind: FindingKind
    title: str
    evidence: list[str]
    gain: float
    advice: str
    lines: tuple[int, ...] = ()
    near: bool = False
    """Worth saying though its bound is low: the unit concerned is nearly the busiest."""


def diagnose(case: Case, index: int) -> list[Diagnosis]:
    """Everything that is wrong with one launch, in no order."""
    launch, budget = case.profile.launches[index], case.budgets[index]
    checks: tuple[Callable[[Case, Launch, Budget], Diagnosis | None], ...] = (
        uncoalesced,
        narrow_access,
        masked_lanes,
        integer_overhead,
        instruction_issue,
        latency,
        occupancy,
        spills,
        bank_conflicts,
        atomics,
        synchronisation,
    )
    found = (check(case, launch, budget) for check in checks)
    return [diagnosis for diagnosis in found if diagnosis is not None]


def uncoalesced(case: Case, launch: Launch, budget: Budget) -> Diagnosis | None:
    """Lanes of a warp touch more sectors than their bytes need.

    From twice the ideal: a row that starts off its sector costs at most 3 sectors for 2, and that
    is alignment, not order. Bound: L1 passes in proportion; L2 and device memory only by what is
    moved beyond the least; where warps wait for memory, that wait.
    """
    bad, sectors, ideal = [], 0.0, 0.0
    for line in launch.lines:
        seen, need = line.sectors_per_request, line.ideal_sectors_per_request
        if not seen or not need:
            continue
        weight = line.instruction_share or 1.0
        sectors, ideal = sectors + weight * seen, ideal + weight * need
        if seen >= 2 * need and seen > 2:
            bad.append(line)
    ratio = launch.metrics.get("sectors_over_ideal", sectors / ideal if ideal else 1.0)
    if not bad or ratio < 1.5:
        return None
    if case.measured:
        excess = _excess(case, "dram"), _excess(case, "l2")
        factors = {
            "l1": 1 / ratio,
            "dram": 1 / min(ratio, excess[0]),
            "l2": 1 / min(ratio, excess[1]),
        }
        gain = max(budget.gain(factors), _without_wait(budget, launch, "idle_memory"))
    else:
        gain = ratio
    evidence = [_access(line) for line in bad]
    evidence.append(f"global sectors moved: {ratio:.1f} times what the lanes' bytes need")
    return Diagnosis(
        FindingKind.UNCOALESCED,
        f"Neighbouring lanes load far apart: {ratio:.1f} times the sectors needed, "
        f"most on {_where(bad)}",
        [*evidence, *_unit(budget, "l1")],
        gain,
        "Let neighbouring lanes touch neighbouring elements of the fastest dimension: order the "
        "block's indices so, keep the accesses of one load on consecutive elements, or load whole "
        "rows and pick from them in registers.",
        _numbers(bad),
        near=_is_near(budget, "l1"),
    )


def narrow_access(case: Case, launch: Launch, budget: Budget) -> Diagnosis | None:
    """A lane moves one word or less where it could move four.

    Lines where all lanes read one address (a sector a request, or less) have nothing to widen.
    Bound: a line's instructions fall as the access widens to 128 bits, its L1 passes by half (a
    64-byte request becomes part of full 128-byte ones); or, where warps wait for memory and no
    unit is near its peak, the bytes in flight grow with the width (Little's law).
    """
    narrow, saved = [], 0.0
    for line in launch.lines:
        bits = line.load_bits or line.store_bits
        broadcast = line.sectors_per_request is not None and line.sectors_per_request <= 1
        if not bits or bits > WORD_BITS or broadcast:
            continue
        share = line.instruction_share or 0.0
        if share < 0.02:  # a line this small gives nothing whatever its width
            continue
        narrow.append(line)
        saved += share * (1 - bits / VECTOR_BITS)
    if not narrow:
        return None
    left = 1 - saved
    scattered = any((line.sectors_per_request or 0) > 16 for line in narrow)
    factors = dict.fromkeys(ARITHMETIC, left) | {"lsu": 0.25, "l1": 1.0 if scattered else 0.5}
    gain = budget.gain(factors)
    widest = min(line.load_bits or line.store_bits or WORD_BITS for line in narrow)
    if launch.metrics.get("idle_memory", 0.0) > 0.3 and budget.peak:
        gain = max(gain, min(1 / budget.peak, VECTOR_BITS / widest))
    return Diagnosis(
        FindingKind.NARROW_ACCESS,
        f"A lane moves {widest} bits at a time on {_where(narrow)}; {VECTOR_BITS} are possible",
        [
            *(_access(line) for line in narrow),
            f"these lines are {100 * _share(narrow):.0f}% of the {_counted(case)} instructions",
            *_next(budget, factors),
        ],
        gain,
        "Give each lane consecutive elements: make innermost strides and sizes constexpr, let "
        "offsets be provably contiguous and aligned (tl.max_contiguous, tl.multiple_of), keep masks "
        "constant over a vector, or load a wider tile once and reuse it.",
        _numbers(narrow),
    )


def masked_lanes(case: Case, launch: Launch, budget: Budget) -> Diagnosis | None:
    """Lanes run, but their loads are switched off by a mask, or they left the warp's branch.

    From half the lanes off: a mask at an edge costs less. Bound: all work of the lanes but
    device memory's in proportion to the lanes that are on.
    """
    on = launch.metrics.get("load_lanes_on")
    active = launch.metrics.get("lanes_active")
    if on is not None and on < 16:
        masked = [
            line
            for line in launch.lines
            if line.load_lanes_on is not None and line.load_lanes_on < 16
        ]
        title = (
            f"{100 * (1 - on / 32):.0f}% of the lanes of masked loads are switched off: "
            f"the work of these lanes on {_where(masked)} gives nothing"
        )
        advice = (
            "Compute which elements contribute before the loop and give lanes only to those: split "
            "the outputs into classes (by parity, by region) that each have a fixed set of "
            "contributing inputs, and write the constant rest without computing it."
        )
        fraction, lines = on / 32, masked
        evidence = [f"lanes on in masked loads: {on:.1f} of 32"]
    elif active is not None and active < 24:
        lines = []
        title = f"Branches split the warps: {active:.0f} of 32 lanes follow the branch"
        advice = "Replace branches on data by tl.where, or sort work so that a warp agrees."
        fraction, evidence = active / 32, [f"active lanes of an instruction: {active:.1f} of 32"]
    else:
        return None
    units = [unit for unit in UNIT_NAMES if unit not in {"dram", "l2"}]
    gain = budget.gain(dict.fromkeys(units, max(fraction, 1e-3)))
    return Diagnosis(FindingKind.DIVERGENCE, title, evidence, gain, advice, _numbers(lines))


def integer_overhead(case: Case, launch: Launch, budget: Budget) -> Diagnosis | None:
    """Most instructions compute addresses, indices and masks.

    From 0.4 of the instructions: vectorised streaming kernels are at 0.15 with masks and loop
    counters, tiled ones below. Bound: integer instructions taken off issue and their pipes.
    """
    shares = integer_shares(launch)
    if shares is None or shares[0] < 0.4:
        return None
    factors = _instruction_factors(budget, *shares)
    lines = sorted(
        (line for line in launch.lines if line.index_instructions),
        key=lambda line: -(line.index_instructions or 0),
    )
    whole = sum(line.index_instructions or 0 for line in lines)
    heavy = [line for line in lines if (line.index_instructions or 0) >= 0.1 * whole][:4]
    dividing = [line for line in launch.lines if line.divisions]
    evidence = [f"integer share of the {_counted(case)} instructions: {100 * shares[0]:.0f}%"]
    evidence += [
        f"line {line.line}: {100 * (line.index_instructions or 0) / whole:.0f}% of them: {line.text}"
        for line in heavy
    ]
    if dividing:
        evidence.append(f"division by a value unknown at compile time: {_where(dividing)}")
    wide = launch.metrics.get("wide_address_share")
    if wide and wide > 0.05:
        evidence.append(f"64-bit address arithmetic: {100 * wide:.0f}% of the instructions")
    return Diagnosis(
        FindingKind.INTEGER_OVERHEAD,
        f"{100 * shares[0]:.0f}% of the instructions compute indices, addresses and masks"
        + (f", most for {_where(heavy)}" if heavy else ""),
        [*evidence, *_unit(budget, "alu"), *_unit(budget, "issue"), *_next(budget, factors)],
        budget.gain(factors),
        "Make shapes, strides and window sizes constexpr so that divisions and masks fold away; "
        "put indices on the grid instead of dividing a flat one; keep offsets 32-bit where they "
        "fit; hoist addresses out of loops; reuse one address for several elements.",
        _numbers(dividing + [line for line in heavy if line not in dividing]),
    )


def instruction_issue(case: Case, launch: Launch, budget: Budget) -> Diagnosis | None:
    """The schedulers are full. Bound: the instructions that are *not* integer taken away.

    The integer ones have their own finding, and the two bounds are of disjoint instructions.
    From 0.7 of the slots: dual dispatch limits and dependencies keep good kernels below 0.9.
    """
    issue = budget.busy.get("issue")
    shares = integer_shares(launch)
    if issue is None or issue < 0.7 or shares is None or not case.measured:
        return None
    factors = _instruction_factors(budget, *(1 - share for share in shares))
    lines = sorted(launch.lines, key=lambda line: -(line.instruction_share or 0))[:3]
    return Diagnosis(
        FindingKind.ISSUE_BOUND,
        f"The schedulers are full: instructions issue in {100 * issue:.0f}% of the slots",
        [
            f"line {line.line}: {100 * (line.instruction_share or 0):.0f}% of the instructions: "
            f"{line.text}"
            for line in lines
        ]
        + _next(budget, factors),
        budget.gain(factors),
        "Do more with each instruction: wider loads, packed or matrix arithmetic, values reused in "
        "registers over several outputs, loops unrolled.",
        _numbers(lines),
    )


def latency(case: Case, launch: Launch, budget: Budget) -> Diagnosis | None:
    """No unit is busy all the time: warps wait. Bound: the busiest unit kept busy throughout."""
    if not case.measured or budget.peak is None or budget.busiest is None:
        return None
    names = {
        "idle_memory": "memory",
        "idle_barrier": "barriers",
        "idle_shared": "shared memory or the special unit",
        "idle_dependency": "earlier results",
    }
    waits = {names[name]: launch.metrics[name] for name in names if launch.metrics.get(name)}
    worst = max(waits, key=lambda name: waits[name], default=None)
    stalled = sorted(launch.lines, key=lambda line: -(line.stall_share or 0))[:2]
    return Diagnosis(
        FindingKind.LATENCY,
        f"Nothing is busy all the time ({UNIT_NAMES[budget.busiest]} {100 * budget.peak:.0f}%)"
        + (f": warps wait for {worst}" if worst else ""),
        [
            *(
                f"{100 * share:.0f}% of the time nothing issued, waiting for {name}"
                for name, share in sorted(waits.items(), key=lambda pair: -pair[1])
                if share > 0.02
            ),
            *(
                f"line {line.line}: {100 * (line.stall_share or 0):.0f}% of the stalls: {line.text}"
                for line in stalled
            ),
        ],
        1 / max(budget.peak, 1e-3),
        "Have more in flight: several independent loads before the first use, software pipelining "
        "(num_stages), more work per program, or more warps on an SM.",
        _numbers(stalled),
    )


def occupancy(case: Case, launch: Launch, budget: Budget) -> Diagnosis | None:
    """Few warps fit on an SM, and the launch waits.

    Below half: with a few independent instructions a warp, half the warps hide latency as well
    as all (Volkov, "Understanding Latency Hiding on GPUs", 2016). Only where no unit is above
    0.8, since more warps do nothing for a unit that is full. Bound: up to half occupancy, and no
    more than the busiest unit allows.
    """
    share = launch.occupancy
    if share is None or share >= 0.5 or (case.measured and (budget.peak or 0) > 0.8):
        return None
    gain = 0.5 / max(share, 1e-2)
    if budget.peak and case.measured:
        gain = min(gain, 1 / budget.peak)
    cause = launch.occupancy_limiter or "its size"
    detail = {
        "registers": f"{launch.registers} registers a thread",
        "shared memory": f"{launch.shared_bytes} bytes of shared memory a block",
    }.get(cause, f"{launch.threads} threads a block")
    return Diagnosis(
        FindingKind.OCCUPANCY,
        f"Only {100 * share:.0f}% of an SM's warps fit, limited by {cause}",
        [f"theoretical occupancy {100 * share:.0f}%", detail, *_unit(budget, budget.busiest)],
        gain,
        "Use fewer registers or less shared memory a block: a smaller block of elements a warp, "
        "more warps for the same block (num_warps), fewer stages, smaller live values in loops.",
    )


def spills(case: Case, launch: Launch, budget: Budget) -> Diagnosis | None:
    """Registers are kept in local memory. Bound: those instructions, and their L1 passes, gone."""
    if not launch.spill_bytes:
        return None
    lines = [line for line in launch.lines if line.spill_instructions]
    whole = sum(line.instructions or 0 for line in launch.lines)
    spilled = sum(line.spill_instructions or 0 for line in lines)
    mix = launch.instruction_mix
    share = spilled / whole if whole else mix.get("local", 0) / max(1, sum(mix.values()))
    local = sum(launch.metrics.get(f"local_{way}_sectors", 0) for way in ("load", "store"))
    passes = local + sum(launch.metrics.get(f"l1_{way}_sectors", 0) for way in ("load", "store"))
    factors = {"issue": 1 - share, "l1": 1 - local / passes if passes else 1.0}
    wait = sum(line.stall_share or 0 for line in lines)
    return Diagnosis(
        FindingKind.SPILLS,
        f"{launch.spill_bytes} bytes a thread spill to memory"
        + (f", on {_where(lines)}" if lines else ""),
        [
            f"{launch.registers} registers a thread",
            f"{100 * share:.1f}% of the {_counted(case)} instructions load or store spilled values",
        ],
        max(budget.gain(factors), 1 / max(1 - min(wait, 0.9), 0.1)),
        "Keep fewer values live: smaller blocks, fewer unrolled iterations, more warps for the "
        "same block, values recomputed instead of kept.",
        _numbers(lines),
        near=True,
    )


def bank_conflicts(case: Case, launch: Launch, budget: Budget) -> Diagnosis | None:
    """Lanes meet in a bank of shared memory. Bound: the extra passes, and the wait for them, gone.

    From 0.3 of the passes: a conflict or two at a layout change costs less than removing it.
    """
    conflicts = launch.metrics.get("bank_conflicts")
    passes = launch.metrics.get("shared_wavefronts")
    if not conflicts or not passes or conflicts < 0.3 * passes:
        return None
    share = min(1.0, conflicts / passes)
    lines = [line for line in launch.lines if line.bank_conflicts]
    factors = {"l1": 1 - share, "lsu": 1 - share}
    gain = max(budget.gain(factors), _without_wait(budget, launch, "idle_shared"))
    return Diagnosis(
        FindingKind.BANK_CONFLICTS,
        f"{100 * share:.0f}% of the passes through shared memory are bank conflicts",
        [f"{conflicts:.3g} conflicts in {passes:.3g} passes", *_unit(budget, "l1")],
        gain,
        "Change what the lanes of a warp address at once: another order of dimensions, a padded or "
        "swizzled layout, a reduction or transposition along the other axis.",
        _numbers(lines),
    )


def atomics(case: Case, launch: Launch, budget: Budget) -> Diagnosis | None:
    """Atomics serialise in the L2. Bound: the atomic unit's work, and the stalls on them, gone."""
    lines = [line for line in launch.lines if "atomic" in line.text]
    sectors = sum(launch.metrics.get(f"{kind}_sectors", 0) for kind in ("atomic", "reduction"))
    if not sectors:
        return None
    stalls = min(0.95, sum(line.stall_share or 0 for line in lines))
    gain = max(budget.gain({"atomics": 0.05, "l2": 0.5}), 1 / (1 - stalls))
    return Diagnosis(
        FindingKind.ATOMICS,
        "Atomics hold the launch up" + (f" on {_where(lines)}" if lines else ""),
        [f"{sectors:.3g} sectors of atomics", *_unit(budget, "atomics")]
        + [f"{100 * stalls:.0f}% of the stalls are on these lines"],
        gain,
        "Reduce within the block first and add once a block, spread the sums over several "
        "addresses, or write partial results and add them in a second launch.",
        _numbers(lines),
    )


def synchronisation(case: Case, launch: Launch, budget: Budget) -> Diagnosis | None:
    """Warps wait for each other. Bound: that wait gone. From a tenth of the time."""
    wait = launch.metrics.get("idle_barrier", 0.0)
    if wait < 0.1:
        return None
    lines = [line for line in launch.lines if line.stall_reasons.get("barrier", 0) > 0.3]
    return Diagnosis(
        FindingKind.SYNCHRONISATION,
        f"{100 * wait:.0f}% of the time nothing issues because warps wait at barriers",
        [f"line {line.line}: {line.text}" for line in lines],
        _without_wait(budget, launch, "idle_barrier"),
        "Fewer barriers: reduce once after the loop instead of in it, use fewer warps a block, or "
        "let more blocks share an SM so that another one works meanwhile.",
        _numbers(lines),
    )


def _instruction_factors(budget: Budget, share: float, alu: float, fma: float) -> dict[str, float]:
    """What is left for each unit when these shares of its instructions go away."""
    factors = {"issue": 1 - share, "alu": 1 - alu, "fma": 1 - fma, "uniform": 1 - share}
    heavy, both = budget.busy.get("fma_heavy"), budget.busy.get("fma")
    if heavy and both is not None:
        # Floats go to either half of the pipe, so what is left spreads evenly over both.
        factors["fma_heavy"] = min(1.0, (1 - fma) * both / heavy)
    return factors


def _without_wait(budget: Budget, launch: Launch, name: str) -> float:
    """Bound where this wait goes away: the time it took, and no more than the busiest allows."""
    wait = launch.metrics.get(name, 0.0)
    limit = 1 / budget.peak if budget.peak else float("inf")
    return max(1.0, min(1 / max(1 - wait, 1e-2), limit))


def _excess(case: Case, level: str) -> float:
    """Bytes moved at a level over the least; 1 where unknown."""
    moved = case.profile.traffic.get(level)
    if moved is None or case.floor is None:
        return 1.0
    return max(1.0, moved / case.floor.least_bytes)


def _is_near(budget: Budget, unit: str) -> bool:
    """Whether this unit is the next to be full: at least 0.6 of the busiest."""
    return budget.peak is not None and budget.busy.get(unit, 0.0) >= 0.6 * budget.peak


def _unit(budget: Budget, unit: str | None) -> list[str]:
    if unit is None or unit not in budget.busy:
        return []
    return [f"{UNIT_NAMES[unit]} is {100 * budget.busy[unit]:.0f}% busy"]


def _next(budget: Budget, factors: Mapping[str, float]) -> list[str]:
    limit = budget.next_limit(factors)
    return [f"what holds it back then: {limit}"] if limit else []


def _counted(case: Case) -> str:
    return "executed" if case.measured else "static"


def _access(line: LineCounters) -> str:
    parts = [f"line {line.line}:"]
    if line.sectors_per_request is not None:
        parts.append(f"{line.sectors_per_request:.1f} sectors a request")
        if line.ideal_sectors_per_request is not None:
            parts.append(f"(least {line.ideal_sectors_per_request:.1f})")
    bits = line.load_bits or line.store_bits
    if bits:
        parts.append(f"{bits} bits a lane")
    return " ".join(parts)


def _share(lines: Iterable[LineCounters]) -> float:
    return sum(line.instruction_share or 0.0 for line in lines)


def _numbers(lines: Iterable[LineCounters]) -> tuple[int, ...]:
    return tuple(line.line for line in lines)


def _where(lines: Iterable[LineCounters]) -> str:
    numbers = [str(line.line) for line in lines][:4]
    if not numbers:
        return "no known line"
    return ("line " if len(numbers) == 1 else "lines ") + ", ".join(numbers)

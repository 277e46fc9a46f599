"""What a launch does wrong with memory: each function looks for one thing and bounds its cost."""

from __future__ import annotations

import math

from kernel_profiling.findings.budget import ARITHMETIC, UNITS, Budget, Case, line_shares
from kernel_profiling.findings.diagnosis import Diagnosis, access, counted, numbers, where
from kernel_profiling.profile import FindingKind, Launch

VECTOR_BITS = 128
"""Widest access of one lane on every GPU before Blackwell; four words."""
WORD_BITS = 32
"""Up to one word a lane, a warp's access fills no more than one 128-byte line."""


def uncoalesced(case: Case, launch: Launch, budget: Budget) -> Diagnosis | None:
    """Lanes of a warp touch more sectors than their bytes need.

    From twice the ideal: a row that starts off its sector costs at most 3 sectors for 2, and that
    is alignment, not order. Bound: L1 passes in proportion; L2 and device memory only by what is
    moved beyond the least; where warps wait for memory and more than the lanes' bytes comes from
    the L2, that wait. Where the L1 catches the rest for another load of the same lane, the loads
    are narrow rather than far apart, and what they wait for is the same bytes.
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
    excess = {level: max(1.0, case.excess(level) or 1.0) for level in ("dram", "l2")}
    factors = {level: 1 / min(ratio, times) for level, times in excess.items()} | {"l1": 1 / ratio}
    gain = budget.gain(factors) if budget.busy else ratio
    if excess["l2"] >= 1.5:
        gain = max(gain, budget.gain_without_wait(launch, "idle_memory"))
    evidence = [access(line) for line in bad]
    evidence.append(f"global sectors moved: {ratio:.1f} times what the lanes' bytes need")
    return Diagnosis(
        FindingKind.UNCOALESCED,
        f"Neighbouring lanes load far apart: {ratio:.1f} times the sectors needed, "
        f"most on {where(bad)}",
        [*evidence, *budget.evidence("l1")],
        gain,
        "Let neighbouring lanes touch neighbouring elements of the fastest dimension: order the "
        "block's indices so, keep the accesses of one load on consecutive elements, or load whole "
        "rows and pick from them in registers.",
        numbers(bad),
        near=budget.is_near("l1"),
    )


def narrow_access(case: Case, launch: Launch, budget: Budget) -> Diagnosis | None:
    """A lane moves one word or less where it could move four.

    Lines where all lanes read one address (a sector a request, or less) have nothing to widen.
    Bound: a line's instructions fall as the access widens to 128 bits, its L1 passes by half (a
    64-byte request becomes part of full 128-byte ones); or, where warps wait for memory and no
    unit is near its peak, the bytes in flight grow with the width (Little's law).
    """
    shares, narrow, saved = line_shares(launch), [], 0.0
    for line in launch.lines:
        bits = line.load_bits or line.store_bits
        broadcast = line.sectors_per_request is not None and line.sectors_per_request <= 1
        if not bits or bits > WORD_BITS or broadcast:
            continue
        if shares.get(line.line, 0.0) < 0.02:  # this little gives nothing whatever its width
            continue
        narrow.append(line)
        saved += shares[line.line] * (1 - bits / VECTOR_BITS)
    if not narrow:
        return None
    share, left = sum(shares[line.line] for line in narrow), 1 - saved
    scattered = any((line.sectors_per_request or 0) > 16 for line in narrow)
    factors = dict.fromkeys(ARITHMETIC, left) | {"lsu": 0.25, "l1": 1.0 if scattered else 0.5}
    gain = budget.gain(factors)
    widest = min(line.load_bits or line.store_bits or WORD_BITS for line in narrow)
    if launch.metrics.get("idle_memory", 0.0) > 0.3 and budget.kept_busy:
        gain = max(gain, min(1 / budget.kept_busy, VECTOR_BITS / widest))
    return Diagnosis(
        FindingKind.NARROW_ACCESS,
        f"A lane moves {widest} bits at a time on {where(narrow)}; {VECTOR_BITS} are possible",
        [
            *(access(line) for line in narrow),
            f"{100 * share:.0f}% of the {counted(case)} instructions are there",
            *budget.next_limit(factors),
        ],
        gain,
        "Give each lane consecutive elements: make innermost strides and sizes constexpr, let "
        "offsets be provably contiguous and aligned (tl.max_contiguous, tl.multiple_of), keep "
        "masks constant over a vector, or load a wider tile once and reuse it.",
        numbers(narrow),
    )


def _is_masked(lanes_on: float) -> bool:
    """Whether a mask leaves on so few lanes of a load: less than half of them, and no power of
    two. Where several lanes hold one element, as of a vector in a wider tile, the compiler leaves
    on one of each 2, 4, 8, …; masks of the kernel's own have edges, and are not so even."""
    power = math.log2(max(lanes_on, 1e-3))
    return lanes_on < 16 and abs(power - round(power)) > 2e-3


def masked_lanes(case: Case, launch: Launch, budget: Budget) -> Diagnosis | None:
    """Lanes run, but their loads are switched off by a mask, or they left the warp's branch.

    From half the lanes off: a mask at an edge costs less. Bound: all work of the lanes but
    device memory's in proportion to the lanes that are on.
    """
    on = launch.metrics.get("load_lanes_on")
    active = launch.metrics.get("lanes_active")
    known = [n for n in launch.lines if n.load_lanes_on is not None]
    lines = [n for n in known if _is_masked(n.load_lanes_on or 0.0)]
    if on is not None and on < 16 and (lines or not known):
        title = (
            f"{100 * (1 - on / 32):.0f}% of the lanes of masked loads are switched off: "
            f"the work of these lanes on {where(lines)} gives nothing"
        )
        advice = (
            "Compute which elements contribute before the loop and give lanes only to those: split "
            "the outputs into classes (by parity, by region) that each have a fixed set of "
            "contributing inputs, and write the constant rest without computing it."
        )
        fraction, evidence = on / 32, [f"lanes on in masked loads: {on:.1f} of 32"]
    elif active is not None and active < 24:
        lines = []
        title = f"Branches split the warps: {active:.0f} of 32 lanes follow the branch"
        advice = "Replace branches on data by tl.where, or sort work so that a warp agrees."
        fraction, evidence = active / 32, [f"active lanes of an instruction: {active:.1f} of 32"]
    else:
        return None
    units = [unit for unit in UNITS if unit not in {"dram", "l2"}]
    gain = budget.gain(dict.fromkeys(units, max(fraction, 1e-3)))
    return Diagnosis(FindingKind.DIVERGENCE, title, evidence, gain, advice, numbers(lines))


def occupancy_gain(case: Case, budget: Budget, share: float) -> float:
    """Bound where a share (0..1) of the warps fits and half of them do; see `execution.occupancy`.

    Measured, no more than the busiest unit allows.
    """
    gain = 0.5 / max(share, 1e-2)
    return min(gain, 1 / budget.kept_busy) if case.measured and budget.kept_busy else gain


def spills_matter(launch: Launch) -> bool:
    """Whether more than 1% of the instructions of this launch's lines move spilled values."""
    whole = sum(line.instructions or 0 for line in launch.lines)
    spilled = sum(line.spill_instructions or 0 for line in launch.lines)
    return bool(launch.spill_bytes) and spilled > 0.01 * whole


def spills(case: Case, launch: Launch, budget: Budget) -> Diagnosis | None:
    """Registers are kept in local memory. Bound: those instructions, and their L1 passes, gone.

    Where they are enough to matter, also the waits on their lines; and where the same lack of
    registers leaves few warps on an SM, what more warps could give.
    """
    if not launch.spill_bytes:
        return None
    spilling = [line for line in launch.lines if line.spill_instructions]
    lines = sorted(spilling, key=lambda line: -(line.spill_instructions or 0))
    whole = sum(line.instructions or 0 for line in launch.lines)
    spilled = sum(line.spill_instructions or 0 for line in lines)
    mix = launch.instruction_mix
    share = spilled / whole if whole else mix.get("local", 0) / max(1, sum(mix.values()))
    local = sum(launch.metrics.get(f"local_{way}_sectors", 0) for way in ("load", "store"))
    passes = local + sum(launch.metrics.get(f"l1_{way}_sectors", 0) for way in ("load", "store"))
    moved = mix.get("local", 0) + mix.get("global_load", 0) + mix.get("global_store", 0)
    # Without counters: of the memory instructions, those that a kernel without spills has not.
    local, passes = (local, passes) if passes else (mix.get("local", 0), max(1, moved))
    factors = {"issue": 1 - share, "l1": 1 - local / passes}
    matters = spills_matter(launch)
    wait = sum(line.stall_share or 0 for line in lines) if matters else 0.0
    gain = budget.gain(factors) if budget.busy else 1 / max(factors["l1"], 1e-2)
    gain = max(gain, 1 / max(1 - min(wait, 0.9), 0.1) if case.measured else 1.0)
    crowded = launch.occupancy_limiter == "registers" and (launch.occupancy or 1) < 0.5
    if crowded and matters:
        gain = max(gain, occupancy_gain(case, budget, launch.occupancy or 1))
    return Diagnosis(
        FindingKind.SPILLS,
        f"{launch.spill_bytes} bytes a thread spill to memory"
        + (f", on {where(lines)}" if lines else ""),
        [
            f"{launch.registers} registers a thread",
            f"{100 * share:.1f}% of the {counted(case)} instructions load or store spilled values",
            *([f"{100 * (launch.occupancy or 1):.0f}% of an SM's warps fit"] if crowded else []),
        ],
        gain,
        "Keep fewer values live: smaller blocks, fewer unrolled iterations, more warps for the "
        "same block, values recomputed instead of kept.",
        numbers(lines),
        near=matters or not case.measured,
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
    gain = max(budget.gain(factors), budget.gain_without_wait(launch, "idle_shared"))
    return Diagnosis(
        FindingKind.BANK_CONFLICTS,
        f"{100 * share:.0f}% of the passes through shared memory are bank conflicts",
        [f"{conflicts:.3g} conflicts in {passes:.3g} passes", *budget.evidence("l1")],
        gain,
        "Change what the lanes of a warp address at once: another order of dimensions, a padded or "
        "swizzled layout, a reduction or transposition along the other axis.",
        numbers(lines),
    )


def atomics(case: Case, launch: Launch, budget: Budget) -> Diagnosis | None:
    """Atomics serialise in the L2. Bound: the atomic unit's work, and the stalls on them, gone.

    Without a GPU: as many atomics as loads, where one a block is usual. Bound: these gone.
    """
    lines = [line for line in launch.lines if "atomic" in line.text]
    on_lines = where(lines) if lines else ""
    if case.measured:
        sectors = sum(launch.metrics.get(f"{kind}_sectors", 0) for kind in ("atomic", "reduction"))
        if not sectors:
            return None
        stalls = min(0.95, sum(line.stall_share or 0 for line in lines))
        gain = max(budget.gain({"atomics": 0.05, "l2": 0.5}), 1 / (1 - stalls))
        title = "Atomics hold the launch up" + (f" on {on_lines}" if lines else "")
        evidence = [f"{sectors:.3g} sectors of atomics", *budget.evidence("atomics")]
        evidence.append(f"{100 * stalls:.0f}% of the stalls are on these lines")
    else:
        mix = launch.instruction_mix
        count, loads = mix.get("atomic", 0), mix.get("global_load", 0)
        if not count or count < loads:
            return None
        gain = (count + loads + mix.get("global_store", 0)) / max(1, loads)
        title = f"{count} atomics to {loads} loads" + (f", on {on_lines}" if lines else "")
        evidence = ["whether they meet at one address is not known without a GPU"]
    return Diagnosis(
        FindingKind.ATOMICS,
        title,
        evidence,
        gain,
        "Reduce within the block first and add once a block, spread the sums over several "
        "addresses, or write partial results and add them in a second launch.",
        numbers(lines),
    )

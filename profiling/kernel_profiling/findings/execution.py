"""What a launch does wrong with its instructions and warps: one function a thing, with its cost."""

from __future__ import annotations

from kernel_profiling.findings.budget import (
    UNITS,
    WAITS,
    Budget,
    Case,
    integer_shares,
    line_shares,
)
from kernel_profiling.findings.diagnosis import Diagnosis, counted, numbers, where
from kernel_profiling.findings.memory_use import occupancy_gain, spills_matter
from kernel_profiling.profile import FindingKind, Launch

LONG_WAIT = 0.2
"""Share of the time from which a wait is told beside a longer one at barriers."""
BARRIER_LINES = 5
"""Lines with most of the wait at barriers."""
INLINED_STALLS = 0.01
"""Share of the stalls from which what reductions and scans wait for is told."""
BARRIER_SHARE = 0.1
"""Share of the time at barriers from which they are a finding: a reduction at the end of a block
costs a few percent, and has to."""


def integer_overhead(case: Case, launch: Launch, budget: Budget) -> Diagnosis | None:
    """Most instructions compute addresses, indices and masks.

    From 0.4 of the instructions: vectorised streaming kernels are at 0.15 with masks and loop
    counters, tiled ones below. Bound: integer instructions taken off issue and their pipes.
    """
    shares = integer_shares(launch)
    if shares is None or shares[0] < 0.4:
        return None
    factors = budget.without_instructions(*shares)
    # Where it was not counted by line, the lines with the most instructions stand in.
    weights = {n.line: float(n.index_instructions) for n in launch.lines if n.index_instructions}
    what = "these" if weights else "all instructions"
    weights = weights or line_shares(launch)
    whole = sum(weights.values())
    lines = sorted(launch.lines, key=lambda line: -weights.get(line.line, 0.0))
    heavy = [n for n in lines if whole and weights.get(n.line, 0.0) >= 0.1 * whole][:4]
    dividing = [line for line in launch.lines if line.divisions]
    evidence = [f"integer share of the {counted(case)} instructions: {100 * shares[0]:.0f}%"]
    for line in heavy:
        share = 100 * weights[line.line] / whole
        evidence.append(f"line {line.line}: {share:.0f}% of {what}: {line.text.strip()}")
    if dividing:
        evidence.append(f"division by a value unknown at compile time: {where(dividing)}")
    wide = launch.metrics.get("wide_address_share")
    if wide and wide > 0.05:
        evidence.append(f"64-bit address arithmetic: {100 * wide:.0f}% of the instructions")
    return Diagnosis(
        FindingKind.INTEGER_OVERHEAD,
        f"{100 * shares[0]:.0f}% of the instructions compute indices, addresses and masks"
        + (f", most for {where(heavy)}" if heavy else ""),
        [*evidence, *budget.evidence("alu", "issue"), *budget.next_limit(factors)],
        budget.gain(factors),
        "Make shapes, strides and window sizes constexpr so that divisions and masks fold away; "
        "put indices on the grid instead of dividing a flat one; keep offsets 32-bit where they "
        "fit; hoist addresses out of loops; reuse one address for several elements.",
        numbers(dividing + [line for line in heavy if line not in dividing]),
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
    factors = budget.without_instructions(*(1 - share for share in shares))
    lines = sorted(launch.lines, key=lambda line: -(line.instruction_share or 0))[:3]
    return Diagnosis(
        FindingKind.ISSUE_BOUND,
        f"The schedulers are full: instructions issue in {100 * issue:.0f}% of the slots",
        [
            f"line {line.line}: {100 * (line.instruction_share or 0):.0f}% of the instructions: "
            f"{line.text}"
            for line in lines
        ]
        + budget.next_limit(factors),
        budget.gain(factors),
        "Do more with each instruction: wider loads, packed or matrix arithmetic, values reused in "
        "registers over several outputs, loops unrolled.",
        numbers(lines),
    )


def latency(case: Case, launch: Launch, budget: Budget) -> Diagnosis | None:
    """No unit is busy all the time: warps wait. Bound: the busiest unit kept busy throughout.

    Not above 0.95: what a streaming kernel reaches is itself known to a few percent.
    """
    peak = budget.kept_busy
    if not case.measured or peak is None or budget.busiest is None or peak > 0.95:
        return None
    busiest = UNITS[budget.busiest][0]
    waits = {WAITS[name]: launch.metrics[name] for name in WAITS if launch.metrics.get(name)}
    worst = max(waits, key=lambda name: waits[name], default=None)
    gain = 1 / max(peak, 1e-3)
    if worst == "barriers" and waits[worst] >= BARRIER_SHARE:
        # That is a finding of its own; the next wait is another where it is long as well.
        name = max((n for n in WAITS if n != "idle_barrier"), key=lambda n: waits.get(WAITS[n], 0))
        worst, gain = WAITS[name], budget.gain_without_wait(launch, name)
        if waits.get(worst, 0) < LONG_WAIT:
            return None
    stalled = sorted(launch.lines, key=lambda line: -(line.stall_share or 0))[:2]
    return Diagnosis(
        FindingKind.LATENCY,
        (
            f"{busiest[0].upper()}{busiest[1:]} {'are' if busiest.endswith('units') else 'is'} "
            f"{100 * peak:.0f}% busy and no unit more"
            + (f": warps wait for {worst}" if worst else "")
        ),
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
        gain,
        "Have more in flight: several independent loads before the first use, software pipelining "
        "(num_stages), more work per program, or more warps on an SM.",
        numbers(stalled),
    )


def occupancy(case: Case, launch: Launch, budget: Budget) -> Diagnosis | None:
    """Few warps fit on an SM, and the launch waits.

    Below half: with a few independent instructions a warp, half the warps hide latency as well
    as all (Volkov, "Understanding Latency Hiding on GPUs", 2016). Only where no unit is above
    0.8, since more warps do nothing for a unit that is full. Bound: up to half occupancy, and no
    more than the busiest unit allows.
    """
    share = launch.occupancy
    peak = budget.kept_busy
    if share is None or share >= 0.5 or (case.measured and (peak or 0) > 0.8):
        return None
    if spills_matter(launch) and launch.occupancy_limiter == "registers":
        return None  # the spills are the same lack of registers, and say more
    cause = launch.occupancy_limiter or "its size"
    detail = {
        "registers": f"{launch.registers} registers a thread",
        "shared memory": f"{launch.shared_bytes} bytes of shared memory a block",
    }.get(cause, f"{launch.threads} threads a block")
    return Diagnosis(
        FindingKind.OCCUPANCY,
        f"Only {100 * share:.0f}% of an SM's warps fit, limited by {cause}",
        [f"theoretical occupancy {100 * share:.0f}%", detail, *budget.evidence(budget.busiest)],
        occupancy_gain(case, budget, share),
        "Use fewer registers or less shared memory a block: a smaller block of elements a warp, "
        "more warps for the same block (num_warps), fewer stages, smaller live values in loops; or "
        "let each warp have more in flight: independent loads before the first use.",
    )


def synchronisation(case: Case, launch: Launch, budget: Budget) -> Diagnosis | None:
    """Warps wait for each other. Bound: that wait gone; the busiest unit kept busy throughout where
    there is no longer wait than this one. From BARRIER_SHARE of the time.
    """
    wait = launch.metrics.get("idle_barrier", 0.0)
    if wait < BARRIER_SHARE:
        return None
    gain = budget.gain_without_wait(launch, "idle_barrier")
    others = ("idle_memory", "idle_shared", "idle_dependency")
    if budget.kept_busy and wait >= max(launch.metrics.get(name, 0.0) for name in others):
        gain = max(gain, 1 / budget.kept_busy)
    shares = [(n.stall_reasons.get("barrier", 0) * (n.stall_share or 0), n) for n in launch.lines]
    waits = sorted((pair for pair in shares if pair[0]), key=lambda pair: -pair[0])[:BARRIER_LINES]
    told = [f"line {n.line}: {part:.0%} of all stalls, at a barrier: {n.text}" for part, n in waits]
    inside = launch.inlined_stalls.get("barrier", 0.0)
    if inside >= INLINED_STALLS:
        told.insert(0, f"inside reductions or scans: {inside:.0%} of all stalls, at a barrier")
    return Diagnosis(
        FindingKind.SYNCHRONISATION,
        f"Warps wait at barriers for {100 * wait:.0f}% of the time",
        told,
        gain,
        "Fewer barriers: reduce once after the loop instead of in it, use fewer warps a block, or "
        "let more blocks share an SM so that another one works meanwhile. Around tl.dot: larger "
        "products, and several that do not wait for each other.",
        numbers(line for _, line in waits),
    )

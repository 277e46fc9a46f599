"""What limits a kernel now: what it does a second beside the floor's rates, and its waits."""

from __future__ import annotations

from beamsearch.records.candidate import Candidate
from beamsearch.report.counters import TRAFFIC, bank_conflicts, largest, waits
from beamsearch.report.numbers import of_floor
from beamsearch.report.run_data import INPUT, RunData
from kernel_profiling.profile import Finding

LEAST_BOUND = 1.02
"""The least bound that says something."""
MOST_FINDINGS = 4
"""The largest bounds first; what is left can give next to nothing."""


def limits(run: RunData, candidate: Candidate) -> list[str]:
    """Sentences, the distance to the floor first; none where it has no time."""
    time, floor = run.ranked_time(candidate), run.record.floor
    if time is None:
        return []
    told = []
    multiple = of_floor(time, run.record)
    if floor is not None and multiple is not None:
        above = max(0.0, time.time_ms - floor.time_ms)
        told.append(
            f"{candidate.name} takes {time}, {multiple:.2f} times the floor: "
            f"{run.about}{above:.3g} ms could still go."
        )
        told += _rates(run, candidate, time.time_ms)
    profile = run.profile(candidate.name)
    launch = largest(profile)
    if launch is None:
        return told
    if waiting := waits(launch):
        told.append(
            "While its longest launch runs, no instruction begins because warps wait for "
            f"{', '.join(f'{what} {share:.0%}' for what, share in waiting)} of the time."
        )
    if conflicts := bank_conflicts(launch, largest(run.profile(INPUT))):
        told.append(conflicts)
    shown = run.findings(candidate)[:MOST_FINDINGS]
    bounds = [f"{finding.gain_bound:.2f}" for finding in shown if finding.gain_bound >= LEAST_BOUND]
    if len(set(bounds)) < len(bounds):
        told.append(
            "Its findings follow. Equal bounds end at the same other limit, a unit that is full by "
            "then, so they do not say which to mend first."
        )
    for finding in shown:
        bound = f"up to {finding.gain_bound:.2f}x if this alone were perfect"
        told.append(f"{finding.title} ({bound}{_worked_on(run, candidate, finding)}).")
    return told


def _rates(run: RunData, candidate: Candidate, time_ms: float) -> list[str]:
    """Bytes and FLOPs a second, in parts of the rates that the floor counts with."""
    floor, profile = run.record.floor, run.profile(candidate.name)
    assert floor is not None
    source = "measured" if floor.bandwidth_source == "measured" else "datasheet's"
    told = []
    moved = profile.traffic.get("dram") if profile and not run.modelled else None
    if moved:
        rate = moved / time_ms / 1e6
        told.append(
            f"It moves {moved / 1e9:.3g} GB {TRAFFIC['dram']}, "
            f"{moved / floor.least_bytes:.2f} times the least bytes, at {rate:.0f} GB/s: "
            f"{rate / floor.bandwidth_gb_s:.0%} of the {source} "
            f"{floor.bandwidth_gb_s:.0f} GB/s. Findings count in that rate too; Nsight "
            "Compute's own share is of the chip's theoretical peak, and lower."
        )
    if floor.flops and floor.flops_rate_tflop_s:
        rate = floor.flops / time_ms / 1e9
        told.append(
            f"The problem's least arithmetic in that time is {run.about}{rate:.1f} TFLOP/s, "
            f"{rate / floor.flops_rate_tflop_s:.0%} of the {floor.flops_rate_tflop_s:.0f} TFLOP/s "
            "of the floor."
        )
    return told


def _worked_on(run: RunData, candidate: Candidate, finding: Finding) -> str:
    """What came of the kernels that were made from it to mend this."""
    kinds = {finding.kind, *finding.seen_as}
    made = [
        c
        for c in run.candidates.values()
        if c.parent == candidate.name and c.direction and c.direction.finding in kinds
    ]
    told = [f"{c.name} {run.against(c, candidate.name) or 'failed'}" for c in made]
    return f"; tried: {', '.join(told)}" if told else "; no worker was sent after it from here"

"""The winner's line, and what limits its end."""

from __future__ import annotations

from beamsearch.records.packed import opened_run
from beamsearch.report.counters import changed
from beamsearch.report.limits import limits
from beamsearch.report.lineage import in_all, lineage, only_in
from beamsearch.report.run_data import INPUT, RunData
from kernel_profiling.profile import Finding, FindingKind
from tests.report.made import WITH_FAILURE, WITH_MODEL, modelled


def test_a_small_finding_does_not_come_or_go_with_its_threshold():
    def finding(kind: FindingKind, bound: float, *seen_as: FindingKind) -> Finding:
        told = {"evidence": [], "lines": [], "assumes": "", "advice": ""}
        return Finding(kind=kind, title=str(kind), gain_bound=bound, seen_as=list(seen_as), **told)

    spills, narrow = FindingKind.SPILLS, FindingKind.NARROW_ACCESS
    latency, occupancy = FindingKind.LATENCY, FindingKind.OCCUPANCY
    before = [finding(spills, 1.05), finding(narrow, 1.4), finding(latency, 2.0)]
    after = [finding(occupancy, 2.0, latency)]
    assert only_in(before, after) == [f"{narrow} (up to 1.40x)"]
    assert only_in(after, before) == [f"{occupancy} (up to 2.00x)"]


def test_the_line_names_whose_lines_a_kernel_has_and_what_moved_in_all():
    assert in_all(RunData(opened_run(WITH_MODEL))) == [], "one step says it already"
    run = RunData(opened_run(WITH_FAILURE))
    one, other = run.lineage(run.winner)[1:3]
    run.candidates[one.name] = one.with_values(built_from=INPUT, built_share=0.5)
    run.candidates[other.name] = other.with_values(built_from=INPUT, built_share=0.5)
    steps = lineage(run)
    assert [step.candidate.name for step in steps] == [c.name for c in run.lineage(run.winner)]
    assert [s.built_from and s.built_from.name for s in steps[:3]] == [None, None, INPUT]
    before, after = run.profile(INPUT), run.profile(run.winner.name)
    told = in_all(run)
    assert told and told == changed(before, after)
    own = run.winner.measurement.with_values(configs={"k": "BLOCK: 8"})
    run.candidates[run.winner.name] = run.winner.with_values(measurement=own)
    assert in_all(run) == told, "the input kernel has no autotuner"


def test_what_limits_a_kernel_rests_on_its_profile_and_the_floor():
    run = RunData(opened_run(WITH_MODEL))
    winner, floor = run.winner, run.record.floor
    told = limits(run, winner)
    time = run.ranked_time(winner).time_ms
    assert f"{time / floor.time_ms:.2f} times the floor" in told[0]
    rate = run.profile(winner.name).traffic["dram"] / time / 1e6
    part = f"at {rate:.0f} GB/s: {rate / floor.bandwidth_gb_s:.0%} of the measured"
    assert part in told[1] and " arithmetic " not in " ".join(told)
    first = run.candidates[INPUT]
    again = limits(run, first)
    title = run.findings(first)[0].title
    line = next(text for text in again if text.startswith(title))
    sent = [c for c in run.candidates.values() if c.parent == INPUT and c.direction]
    kinds = {run.findings(first)[0].kind, *run.findings(first)[0].seen_as}
    assert all((f"{c.name} " in line) == (c.direction.finding in kinds) for c in sent)
    assert any(c.direction.finding in kinds for c in sent)
    assert limits(run, first.with_values(measurement=None)) == []


def test_modelled_limits_carry_their_sign(tmp_path):
    run = RunData(modelled(tmp_path / "run"))
    told = " ".join(limits(run, run.winner))
    assert "ms could still go" in told and " ~" in told and "GB/s" not in told

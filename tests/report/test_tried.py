"""What a run tried, in words."""

from __future__ import annotations

import pytest

from beamsearch.records.candidate import OPEN, Direction
from beamsearch.records.packed import opened_run
from beamsearch.report import tried
from beamsearch.report.run_data import RunData
from tests.report.made import WITH_FAILURE, WITH_MODEL


def test_a_direction_is_told_with_what_the_profile_said():
    run = RunData(opened_run(WITH_FAILURE))
    sent = [c for c in run.candidates.values() if c.direction]
    told = {tried.aim(run, c) for c in sent}
    for c in sent:
        parent = run.candidates[c.parent]
        titles = [f.title.lower() for f in run.findings(parent) if f.kind == c.direction.finding]
        assert tried.aim(run, c).startswith(str(c.direction.finding).replace("_", " ")[:4])
        assert not titles or f"({titles[0]})" in tried.aim(run, c).lower()
    assert any("(" in text for text in told)
    free = sent[0].with_values(direction=Direction(finding=OPEN, plan=1))
    assert tried.aim(run, free) == "open: no finding was given, plan 2"
    assert tried.aim(run, sent[0].with_values(direction=None)) == "nothing in particular"


def test_what_gained_most_is_told_of_a_direction_and_whether_it_moved_what_it_was_about():
    run = RunData(opened_run(WITH_FAILURE))
    rows = tried.directions(run)
    for row in rows:
        own = [
            c
            for c in run.candidates.values()
            if c.direction and c.direction.finding.replace("_", " ") == row.name
        ]
        gains = [change.speedup for c in own if (change := run.against(c, c.parent))]
        assert sum(row.counts.values()) == len(own)
        if gains:
            best = run.candidates[row.best]
            assert run.against(best, best.parent).speedup == max(gains)
            assert (row.measured == "not profiled") == (run.profile(row.best) is None)
    assert any(", now " in row.measured for row in rows)


@pytest.mark.parametrize("recorded", [WITH_MODEL, WITH_FAILURE])
def test_every_worker_is_told_of_once(recorded):
    run = RunData(opened_run(recorded))
    line = {c.name for c in run.lineage(run.winner)}
    in_line = [own for own in run.workers if any(c.name in line for c in own)]
    beside, vain = tried.beside_the_line(run), tried.in_vain(run)
    assert all(own in run.workers for own in (*beside, *vain))
    assert not any(own in vain for own in beside)
    assert all((own in in_line) + (own in beside) + (own in vain) >= 1 for own in run.workers)
    others = {c.name for c in tried.in_the_line(run)}
    correct = {c.name for own in in_line for c in own if c.verdict.correct}
    assert others == correct - line


def test_a_repair_is_told_with_what_it_repairs_and_a_kernel_with_what_ran():
    run = RunData(opened_run(WITH_FAILURE))
    first, other = [c for c in run.candidates.values() if c.direction][:2]
    repaired = other.with_values(repair_of=first.name)
    assert tried.described(run, repaired) == f"{first.description} Repaired: {other.description}"
    assert tried.described(run, first) == first.description
    configs = {"k": "BLOCK: 64, num_warps: 4, num_ctas: 1"}
    tuned = first.with_values(measurement=first.measurement.with_values(configs=configs))
    assert tried.ran_with(tuned) == " Ran with [BLOCK 64, num_warps 4]."
    assert tried.ran_with(first) == ""

"""A run in words."""

from __future__ import annotations

import pytest

from beamsearch.records.candidate import OPEN, Direction
from beamsearch.records.packed import opened_run
from beamsearch.report import words
from beamsearch.report.run_data import RunData
from kernel_profiling.profile import Finding, FindingKind
from tests.report.made import PLAYBOOK, WITH_FAILURE, WITH_MODEL


def test_what_was_not_tuned_is_not_called_switched_off_unless_it_was():
    run = RunData(opened_run(PLAYBOOK))
    assert run.record.settings.tune is None
    nothing = run.record.totals.with_values(tuning=None)
    run.record = run.record.with_values(totals=nothing)
    assert words.tuned(run) == "nothing"
    run.record = run.record.with_values(settings=run.record.settings.model_copy(update={"tune": 0}))
    assert words.tuned(run) == "nothing (switched off)"


@pytest.mark.parametrize("times", [0.5, 2.0])
def test_a_winner_that_is_slower_than_a_baseline_is_called_so(times):
    run = RunData(opened_run(WITH_MODEL))
    confirmed = run.record.confirmation
    faster = confirmed.winner.with_values(time_ms=confirmed.winner.time_ms * times)
    baselines = confirmed.baselines.with_values(max_autotune=faster)
    run.record = run.record.with_values(
        confirmation=confirmed.with_values(baselines=baselines), baselines=baselines
    )
    words_of = {of: value for value, of in words.headline(run)}
    assert words_of[f"{'slower' if times < 1 else 'faster'} than max-autotune"] == "2.00x"


def test_a_small_finding_does_not_come_or_go_with_its_threshold():
    def finding(kind: FindingKind, bound: float, *seen_as: FindingKind) -> Finding:
        told = {"evidence": [], "lines": [], "assumes": "", "advice": ""}
        return Finding(kind=kind, title=str(kind), gain_bound=bound, seen_as=list(seen_as), **told)

    spills, narrow = FindingKind.SPILLS, FindingKind.NARROW_ACCESS
    latency, occupancy = FindingKind.LATENCY, FindingKind.OCCUPANCY
    before = [finding(spills, 1.05), finding(narrow, 1.4), finding(latency, 2.0)]
    after = [finding(occupancy, 2.0, latency)]
    assert words.only_in(before, after) == [f"{narrow} (up to 1.40x)"]
    assert words.only_in(after, before) == [f"{occupancy} (up to 2.00x)"]


def test_a_direction_is_told_with_what_the_profile_said():
    run = RunData(opened_run(WITH_FAILURE))
    sent = [c for c in run.candidates.values() if c.direction]
    told = {words.aim(run, c) for c in sent}
    for c in sent:
        parent = run.candidates[c.parent]
        titles = [f.title.lower() for f in run.findings(parent) if f.kind == c.direction.finding]
        assert words.aim(run, c).startswith(str(c.direction.finding).replace("_", " ")[:4])
        assert not titles or f"({titles[0]})" in words.aim(run, c).lower()
    assert any("(" in text for text in told)
    free = sent[0].with_values(direction=Direction(finding=OPEN, plan=1))
    assert words.aim(run, free) == "open: no finding was given, plan 2"
    assert words.aim(run, sent[0].with_values(direction=None)) == "nothing in particular"


def test_what_gained_most_is_told_of_a_direction_and_what_lost_beside_it():
    run = RunData(opened_run(WITH_FAILURE))
    for direction, counts, best in words.directions(run):
        own = [
            c
            for c in run.candidates.values()
            if c.direction and c.direction.finding.replace("_", " ") == direction
        ]
        gains = [change.speedup for c in own if (change := run.against(c, c.parent))]
        assert sum(counts.values()) == len(own)
        if gains:
            assert run.against(run.candidates[best], run.candidates[best].parent).speedup == max(
                gains
            )
    told = {c.name for own in (*words.in_vain(run), *(k for _, k in words.lost(run))) for c in own}
    behind = {c.name for c in words.behind_a_sibling(run)}
    slower = {
        c.name
        for c in run.candidates.values()
        if (change := run.against(c, c.parent)) and change.word == "slower"
    }
    assert behind and behind <= slower <= behind | told

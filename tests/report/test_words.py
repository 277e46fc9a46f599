"""A run in words."""

from __future__ import annotations

import pytest

from beamsearch.records.packed import opened_run
from beamsearch.report import words
from beamsearch.report.run_data import RunData
from tests.report.made import PLAYBOOK, WITH_MODEL


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

"""A whole run whose code never compiles: plans come back, and are not thought of again."""

import pytest

from beamsearch.records.trace import Trace, read_record
from beamsearch.records.verdict import Outcome
from beamsearch.search.directions import Plan
from tests.commands import beamsearch
from tests.server import Script, serving
from tests.thinker import clumsy


@pytest.mark.slow
def test_a_plan_whose_code_failed_is_carried_out_again_without_asking_for_another(tmp_path):
    config = tmp_path / "settings.toml"
    config.write_text("repairs = 0\nmax_candidates = 9\n")
    folder = tmp_path / "run"
    options = ["--rounds", 3, "--workers", 4, "--variants", 1, "--seed", 5, "--config", config]
    script = Script(think=clumsy)
    with serving(script=script) as base_url:
        endpoint = {"OPENAI_API_KEY": "sk-none", "OPENAI_BASE_URL": base_url}
        result = beamsearch("run", "04", *options, "--output", folder, **endpoint)
    assert result.returncode == 0, result.stderr

    # Given a first round of which nothing compiles
    trace = Trace(folder)
    one, two = (read_record(trace.round(n) / "plan.json", Plan).assignments for n in (1, 2))
    failed = {Outcome.COMPILE_ERROR}
    assert {c.verdict.outcome for c in trace.round_record(1).candidates} == failed
    assert {a.parent for a in one + two} == {"r0-s0"}
    assert len({str(a.direction) for a in one + two}) == 8
    assert not any(a.direction.again for a in one)

    # When a finding's turn comes again, then its plan does, and only the code is asked for
    again = [a for a in two if a.direction.again]
    assert again
    for a in two:
        worker = trace.worker(2, a.worker)
        asked = (worker / "opt_prompt.txt").read_text()
        assert (worker / "bottleneck_prompt.txt").exists() != a.direction.again
        assert ("its code failed, write it anew" in asked) == a.direction.again
        if a.plan_of is not None:
            first = trace.worker(a.plan_of.round, a.plan_of.worker)
            assert (worker / "strategy.json").read_text() == (first / "strategy.json").read_text()
            assert one[a.plan_of.worker].direction.finding == a.direction.finding

    # And the third round has room for one candidate of nine
    assert len(trace.round_record(3).candidates) == 1
    record = trace.run_record()
    assert record.totals.candidates == 9
    assert record.stop_reason == "all 3 rounds done"

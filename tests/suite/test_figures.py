"""The figures of a suite, against numbers worked out by hand."""

import math

import pytest

from beamsearch.records.suite import Entry, Suite
from beamsearch.settings import Settings
from beamsearch.suite.budget import Used, settings_of_run, share
from beamsearch.suite.figures import costs, fast_p, figures, gain_curve, of_sources
from beamsearch.suite.rows import Row


def measured(name, time_ms, eager, compile, max_autotune, floor_ms=0.25, **more):
    baselines = {"eager": eager, "compile": compile, "max_autotune": max_autotune}
    values = {"state": "finished", "source": "measured", "is_correct": True, "input_ms": 8.0} | more
    return Row(name=name, time_ms=time_ms, baselines_ms=baselines, floor_ms=floor_ms, **values)


FASTER = measured("faster", 1.0, 2.0, 1.2, 1.6, floor_ms=0.5, flaws=["idle data"])
SLOWER = measured("slower", 2.0, 2.0, 1.0, 4.0)
WRONG = measured("wrong", 1.0, 10.0, 10.0, 10.0, is_correct=False)
FAILED = Row(name="failed", state="failed")
ROWS = [FASTER, SLOWER, WRONG, FAILED]


def test_fast_p_is_of_all_problems_and_strictly_faster():
    assert [fast_p([2.0, 1.0, None], 4, p) for p in (0, 0.5, 1, 2)] == [0.75, 0.5, 0.25, 0]
    assert fast_p([], 0, 1) == 0


def test_kernels_as_they_are():
    found = figures(ROWS)
    assert (found.problems, found.correct) == (4, 2)
    # 2.0 and 1.0 times as fast as eager, 1.2 and 0.5 as torch.compile, 1.6 and 2.0 as max-autotune
    assert list(found.fast["eager"].values()) == [0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0]
    assert list(found.fast["compile"].values()) == [0.5, 0.25, 0.25, 0.25, 0, 0, 0]
    assert list(found.fast["max_autotune"].values()) == [0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 0]
    assert list(found.fast["eager"]) == ["0", "0.5", "0.8", "1", "1.2", "1.5", "2"]
    assert found.over["eager"].mean == pytest.approx(math.sqrt(2))
    assert found.over["eager"].median == 1.5
    assert found.over["compile"].mean == pytest.approx(math.sqrt(0.6))
    assert found.over["input"].mean == pytest.approx(math.sqrt(8 * 4))
    # log(1.2 / 1) / log(1.2 / 0.5), and log(1 / 2) / log(1 / 0.25)
    assert found.headroom.mean == pytest.approx((0.182322 / 0.875469 - 0.5) / 2, abs=1e-5)
    assert found.headroom.count == 2


def test_a_baseline_stands_where_it_is_faster_and_is_never_a_win():
    found = figures(ROWS, taken=True)
    assert found.over["eager"].mean == pytest.approx(2.0)  # 2 / 1, and 2 / 1 by torch.compile
    assert found.fast["compile"]["1"] == 0.25  # torch.compile is not faster than itself
    assert found.headroom.mean == pytest.approx(0.182322 / 0.875469 / 2, abs=1e-5)
    (source,) = of_sources(ROWS)
    assert source.won == ["faster"] and source.faster_baseline == ["slower"]


def test_less_than_the_noise_is_neither_a_win_nor_a_loss():
    for baseline in (0.992, 1.008):
        row = measured("tie", 1.0, 3.0, baseline, 3.0)
        assert not row.is_won and row.faster_baseline is None
        assert row.used_ms(taken=True) == 1.0
    assert measured("win", 1.0, 3.0, 1.02, 3.0).is_won
    assert measured("loss", 1.0, 3.0, 0.98, 3.0).faster_baseline == "compile"


def test_near_the_floor_there_is_no_headroom():
    near = measured("near", 0.5, 1.0, 0.54, 1.0, floor_ms=0.5)
    assert near.headroom_share() is None
    assert figures([near, FASTER]).headroom.count == 1
    assert of_sources([near, FASTER])[0].little_headroom == ["near"]


def test_flawed_problems_are_left_out_beside():
    (source,) = of_sources(ROWS)
    assert source.raw.problems == 4 and source.raw_without_flawed.problems == 3
    assert source.raw_without_flawed.over["eager"].mean == 1.0
    assert source.recommended_without_flawed.over["eager"].mean == 2.0
    assert of_sources([SLOWER])[0].raw_without_flawed is None


def test_measured_and_modelled_times_never_meet():
    values = {"state": "finished", "source": "modelled", "is_correct": True, "gains": [9.0]}
    modelled = Row(name="modelled", time_ms=1.0, input_ms=9.0, floor_ms=0.5, **values)
    one, other = of_sources([*ROWS, modelled])
    assert (one.source, other.source) == ("measured", "modelled")
    assert one.raw == figures(ROWS) and one.gains == []
    assert other.raw.problems == 2  # it, and the one that failed
    assert other.raw.over["input"].median == 9.0 and other.raw.fast == {}
    assert other.recommended is None and not other.won


def test_the_gain_grows_with_the_candidates():
    gains = [[1.0, 2.0, 2.0, 4.0], [3.0], []]
    curve = gain_curve(gains)
    assert [(point.candidates, point.still) for point in curve] == [(1, 2), (2, 1), (4, 1)]
    assert [p.speedup for p in curve] == pytest.approx([math.sqrt(n) for n in (3, 6, 12)])
    assert gain_curve([[]]) == []
    # The best baseline takes 1.2 ms where the input kernel takes 8
    row = FASTER.with_values(gains=[1.0, 4.0])
    assert row.gains_over_baseline == pytest.approx([0.15, 0.6])
    assert FAILED.gains_over_baseline == []


def test_costs_are_told_only_where_all_are_known():
    rows = [row.with_values(cost_usd=0.5, tokens=10, seconds=2) for row in ROWS]
    found = costs([*rows, Row(name="next", state="waiting")], wins=1)
    assert (found.cost_usd, found.per_problem_usd, found.per_win_usd) == (2.0, 0.5, 2.0)
    assert (found.tokens, found.seconds) == (40, 8)
    # One that waits for a larger limit has begun
    cut = ROWS[0].with_values(state="waiting", dtype="float32", cost_usd=0.5)
    assert costs([*rows, cut], wins=1).per_problem_usd == 0.5
    assert costs(rows, wins=0).per_win_usd is None
    assert costs([FASTER.with_values(cost_usd=None)], wins=1).cost_usd is None


def test_what_is_left_is_shared():
    assert [share(100, n) for n in (10, 2, 1)] == [12.5, 62.5, 100]
    assert share(-3, 4) == 0
    left, problems = 1.0, 10
    for n in range(problems, 1, -1):
        left -= share(left, n)
    assert 0.4 / problems < share(left, 1) < 0.5 / problems  # the last, were all to take it all


def test_a_run_gets_its_share_above_what_it_took():
    states = ("finished", "failed", "running", "waiting", "waiting")
    entries = [Entry(name=s, path=s, state=s, seconds=10) for s in states]
    suite = Suite(settings=Settings(time_limit_s=110, max_cost=3), entries=entries)
    used = [Used(20, 0.5), Used(), Used(4, 0.25), Used(), Used()]
    # 20 + 10 + 10 + 10 + 10 s and $0.75 are gone: 50 s and $2.25 for three
    settings = settings_of_run(suite, 2, used)
    assert settings.time_limit_s == pytest.approx(4 + 50 / 3 * 1.25)
    assert settings.max_cost == pytest.approx(0.25 + 2.25 / 3 * 1.25)
    gone = settings_of_run(suite, 3, [Used(0, 3.0), *used[1:]])
    assert "--max-cost" in gone
    free = Suite(settings=Settings(), entries=entries)
    assert settings_of_run(free, 3, used) == Settings()

"""A round's kernels that seem to beat the best are timed again beside it, several of them."""

from beamsearch.search.pairs import Ratio
from beamsearch.search.strategies import CONTENDERS, STRATEGIES, settle
from tests.search.made import candidate

FIRST = candidate("r0-s0", 1.0, round=0)


def standing(made, again):
    asked = []

    def confirm(faster, before):
        asked.append([c.name for c in faster])
        assert before.name == FIRST.name
        return {c.name: Ratio.of(again[c.name]) for c in faster if c.name in again}

    found = settle(
        STRATEGIES["beam"],
        [FIRST],
        made,
        FIRST,
        times={c.name: c.time_ms for c in [FIRST, *made]},
        k=2,
        families={},
        confirm=confirm,
    )
    return found, asked


def kernels(*times):
    return [candidate(f"r1-w{n}-v0", t, parent="r0-s0") for n, t in enumerate(times)]


def test_where_the_fastest_was_only_lucky_the_next_one_wins():
    made = kernels(0.95, 0.96, 0.97)
    found, asked = standing(made, {"r1-w0-v0": 1.02, "r1-w1-v0": 0.97, "r1-w2-v0": 0.96})
    assert asked == [["r1-w0-v0", "r1-w1-v0", "r1-w2-v0"]]
    assert found.win and found.running_best.name == found.best.name == "r1-w2-v0"
    # And the lucky one has no place by a time that it does not have
    assert found.beam == ["r1-w2-v0", "r1-w1-v0"]
    assert found.times["r1-w0-v0"] == 1.02


def test_none_is_confirmed():
    found, _ = standing(kernels(0.95, 0.96), {"r1-w0-v0": 1.02, "r1-w1-v0": 0.995})
    assert not found.win and found.running_best.name == "r0-s0"
    assert found.best.name == "r1-w1-v0"


def test_one_that_could_not_be_timed_again_is_no_win():
    found, _ = standing(kernels(0.5, 0.96), {"r1-w1-v0": 0.95})
    assert found.win and found.best.name == "r1-w1-v0"


def test_no_more_than_some_are_and_none_that_ties():
    assert standing(kernels(0.995, 1.2), {})[1] == []
    _, asked = standing(kernels(0.5, 0.6, 0.7, 0.8, 0.9), {})
    assert len(asked[0]) == CONTENDERS

"""The beam and its siblings by example: who has children, and who is kept."""

from collections import Counter

from beamsearch.search.directions import worker_seed
from beamsearch.search.pairs import is_win
from beamsearch.search.strategies import STRATEGIES, State
from beamsearch.search.survivors import FAMILY_REACH, distinct, families, survivors
from tests.search.made import candidate


def kept(rows, k, family=""):
    """Names of the survivors of (time, family letter) rows, in order."""
    pool = [candidate(f"c{i}", time) for i, time in enumerate(rows)]
    letters = {c.name: letter for c, letter in zip(pool, family, strict=False)}
    times = {c.name: c.time_ms for c in pool}
    return [c.name for c in survivors(pool, times, k, letters)]


def test_of_kernels_that_tie_the_one_built_another_way_is_kept():
    assert kept([1.0, 1.3, 1.305, 1.31], 2, "aaab") == ["c0", "c3"]
    assert kept([1.0, 1.3, 1.305, 1.32], 2, "aaab") == ["c0", "c1"]
    assert kept([1.0, 1.01, 1.012, 1.015], 3, "aaab") == ["c0", "c1", "c3"]
    assert kept([1.0, 1.0, 1.0], 2, "aab") == ["c0", "c2"]


def test_the_last_place_goes_to_another_family_within_reach():
    near, far = FAMILY_REACH - 0.01, FAMILY_REACH + 0.01
    assert kept([1.0, 1.05, near], 2, "aab") == ["c0", "c2"]
    assert kept([1.0, 1.05, far], 2, "aab") == ["c0", "c1"]
    assert kept([1.0, 1.05, near], 1, "aab") == ["c0"]
    assert kept([1.0, 1.05, 1.1, near], 3, "abac") == ["c0", "c1", "c2"]  # two families already


def test_equal_source_or_machine_code_is_one_kernel_the_earliest():
    pool = [
        candidate("c0", 1.0, "s0", code="x"),
        candidate("c1", 0.999, "s1", code="x"),
        candidate("c2", 1.2, "s2", code="y"),
        candidate("c3", 1.1, "s2", code="z"),
    ]
    assert [c.name for c in distinct(pool, {c.name: c.time_ms for c in pool})] == ["c0", "c2"]


def test_a_kernel_and_what_it_was_tuned_to_take_one_place():
    base, other = candidate("base", 1.1), candidate("other", 1.2)
    tuned = candidate("base-t1", 1.0, tuned_from="base")
    families = {"base": "a", "base-t1": "a", "other": "a"}
    times = {c.name: c.time_ms for c in (base, other, tuned)}
    kept = survivors([base, other, tuned], times, 2, families)
    assert [c.name for c in kept] == ["base-t1", "other"]


def test_a_family_is_kernels_that_share_their_lines(tmp_path):
    base = [f"line {n}" for n in range(20)]
    sources = {
        "a": base,
        "b": [*base[:19], "num_warps=8"],
        "c": [f"other {n}" for n in range(20)],
        "d": [*base[:18], "num_warps=8", "num_stages=2"],
    }
    pool = [candidate(name, kernel_file=f"{name}.py") for name in sources]
    found = families(pool, lambda c: "\n".join(sources[c.name]))
    assert found == {"a": "a", "b": "a", "c": "c", "d": "a"}


def state(workers=4, stalled=False, **more):
    pool = [
        candidate("r0-s0", 1.0, round=0),
        *(candidate(f"r1-w{n}-v0", 1 - n / 20, parent="r0-s0") for n in range(8)),
    ]
    given = {
        "round": 2,
        "workers": workers,
        "seed": 0,
        "candidates": pool,
        "times": {c.name: c.time_ms for c in pool},
        "beam": ["r1-w7-v0", "r1-w6-v0"],
        "best": "r1-w7-v0",
        "stalled": stalled,
    }
    return State(**(given | more))


def test_whose_children_come_next():
    best, second = "r1-w7-v0", "r1-w6-v0"
    assert STRATEGIES["beam"].parents(state()) == [best, second, best, second]
    assert STRATEGIES["beam"].parents(state(5)) == [best, second, best, second, best]
    assert STRATEGIES["greedy"].parents(state()) == [best] * 4
    assert STRATEGIES["best-of-n"].parents(state()) == ["r0-s0"] * 4


def test_a_beam_that_stalls_starts_one_worker_afresh():
    best, second = "r1-w7-v0", "r1-w6-v0"
    assert STRATEGIES["beam"].parents(state(stalled=True)) == [best, second, best, "r0-s0"]
    assert STRATEGIES["beam"].parents(state(2, stalled=True)) == [best, second]


def test_a_kernel_far_behind_the_fastest_has_no_children():
    best, second = "r1-w7-v0", "r1-w6-v0"
    times = state().times
    near = times | {second: FAMILY_REACH * times[best]}
    far = times | {second: FAMILY_REACH * times[best] * 1.01}
    assert STRATEGIES["beam"].parents(state(times=near)) == [best, second, best, second]
    assert STRATEGIES["beam"].parents(state(times=far)) == [best] * 4
    assert STRATEGIES["beam"].parents(state(2, times=far, stalled=True)) == [best, "r0-s0"]


def test_a_tree_draws_from_all_by_speedup_after_eight_first_attempts():
    few = state().candidates[:8]
    assert STRATEGIES["tree"].parents(state(candidates=few)) == ["r0-s0"] * 4
    times = {c.name: 4.0 for c in state().candidates} | {"r1-w7-v0": 1.0}
    drawn = Counter(
        name
        for seed in range(300)
        for name in STRATEGIES["tree"].parents(state(seed=seed, times=times))
    )
    assert len(drawn) == 9  # everybody has children
    # one of speedup 1 among eight of 1/4: a third of the draws
    assert 0.28 < drawn["r1-w7-v0"] / drawn.total() < 0.39
    assert STRATEGIES["tree"].max_candidates == 300


def test_a_difference_inside_the_noise_is_a_tie():
    assert not is_win(0.995, 1.0)
    assert is_win(0.98, 1.0)


def test_seeds_differ_between_workers_and_repeat():
    seeds = {worker_seed(0, r, w) for r in range(8) for w in range(4)}
    assert len(seeds) == 32
    assert worker_seed(0, 1, 2) == worker_seed(0, 1, 2) != worker_seed(1, 1, 2)

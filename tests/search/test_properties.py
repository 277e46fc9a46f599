"""What holds for every strategy on every landscape, whatever fails: the search functions alone."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beamsearch.records.verdict import Outcome
from beamsearch.search.pairs import is_tie, is_win
from beamsearch.search.stopping import Limits, stop_reason
from beamsearch.search.strategies import STRATEGIES
from beamsearch.settings import Settings
from tests.search.made import World, play

WORLDS = st.builds(
    World,
    seed=st.integers(0, 10**6),
    findings=st.integers(0, 4),
    failing=st.sampled_from([0.0, 0.3, 0.9]),
    repeats=st.sampled_from([0.0, 0.5]),
    ties=st.sampled_from([0.0, 0.3, 0.9]),
)
LOST = st.frozensets(st.tuples(st.integers(1, 5), st.integers(0, 5)))
WORKERS, WIDTH = st.integers(1, 6), st.integers(1, 4)
every_strategy = pytest.mark.parametrize("strategy", sorted(STRATEGIES))


@every_strategy
@settings(max_examples=100)
@given(WORLDS, WORKERS, WIDTH, LOST)
def test_any_round_is_valid_whichever_workers_fail(strategy, world, workers, k, lost):
    played = play(strategy, world, workers=workers, k=k, lost=lost)
    candidates = played.candidates
    best_time = played.times["r0-s0"]
    for record in played.rounds:
        # The best time never gets worse, and only a win changes the best
        time = played.times[record.running_best]
        assert time <= best_time
        assert record.win == is_win(time, best_time)
        best_time = time
        # No kernel that was judged correct beats it by more than the noise
        correct = [c.name for c in record.candidates if c.verdict.correct]
        assert not any(is_win(played.times[name], time) for name in correct)
        # What is kept is at most k different kernels, fastest first, the best among them
        kept = [candidates[name] for name in record.beam]
        assert record.running_best in record.beam
        assert 1 <= len(kept) <= k
        assert len({c.fingerprint for c in kept}) == len(kept)
        assert len({c.verdict.code_fingerprint for c in kept}) == len(kept)
        assert [played.times[c.name] for c in kept] == sorted(played.times[c.name] for c in kept)


@every_strategy
@settings(max_examples=100)
@given(WORLDS, WORKERS, WIDTH, LOST)
def test_every_worker_has_a_correct_parent_and_a_direction_of_its_own(
    strategy, world, workers, k, lost
):
    played = play(strategy, world, workers=workers, k=k, lost=lost)
    given_before = set()
    for number, plan in enumerate(played.plans, 1):
        assert [a.worker for a in plan.assignments] == list(range(workers))
        known = {c.name: c for r in played.rounds[:number] for c in r.candidates}
        for a in plan.assignments:
            assert known[a.parent].verdict.correct
            assert (a.parent, a.direction) not in given_before
            given_before.add((a.parent, a.direction))
        shares = {(a.parent, a.share) for a in plan.assignments}
        assert len(shares) == workers
        assert all(0 <= a.share < a.shares <= workers for a in plan.assignments)


@settings(max_examples=100)
@given(WORLDS, WORKERS, WIDTH, LOST)
def test_a_worker_without_a_win_returns_nothing(world, workers, k, lost):
    played = play("beam", world, workers=workers, k=k, lost=lost)
    for before, record in zip(played.rounds, played.rounds[1:], strict=False):
        assert len(record.beam) == k or set(before.beam) <= set(record.beam)
        for name in set(record.beam) - set(before.beam):
            new = played.candidates[name]
            own, parents = played.times[name], played.times[new.parent]
            other = played.families[name] != played.families[new.parent]
            assert is_win(own, parents) or (is_tie(own, parents) and other)


@every_strategy
@settings(max_examples=20)
@given(WORLDS, st.integers(0, 99), LOST)
def test_the_same_seed_and_replies_give_the_same_run(strategy, world, seed, lost):
    one, other = (play(strategy, world, seed=seed, lost=lost) for _ in range(2))
    assert one.rounds == other.rounds
    assert one.plans == other.plans


@every_strategy
@settings(max_examples=30)
@given(WORLDS, LOST, st.integers(1, 5), st.integers(1, 60), st.floats(1.1, 3))
def test_every_search_stops_in_time_and_says_why(
    strategy, world, lost, patience, candidates, target
):
    played = play(strategy, world, rounds=6, lost=lost)
    limits = Limits(rounds=6, patience=patience, candidates=candidates, target_speedup=target)
    for n in range(len(played.rounds)):
        rounds = played.rounds[: n + 1]
        made = sum(len(r.candidates) for r in rounds[1:])
        speedup = 1 / played.times[rounds[-1].running_best]
        reason = stop_reason(rounds, limits, variants=2, speedup=speedup)
        stalled = n >= patience and not any(r.win for r in rounds[-patience:])
        spent = made + 2 > candidates
        idle = n > 1 and all(
            c.verdict.outcome in (Outcome.NO_CODE, Outcome.DUPLICATE)
            for record in rounds[-2:]
            for c in record.candidates
        )
        # It stops exactly where one of the limits is reached, and names one that is
        assert (reason is not None) == (n >= 6 or stalled or spent or idle or speedup >= target)
        if reason is not None:
            named = {
                "rounds done": n >= 6,
                "patience": stalled,
                "candidates": spent,
                "nothing new": idle,
                "times as fast": speedup >= target,
            }
            assert any(held and words in reason for words, held in named.items())
            return
        # And the workers of the next round do not pass the limit of candidates
        assert made + 2 * limits.workers(rounds, 4, 2) <= candidates
    raise AssertionError("it goes on after its last round")


def test_every_strategy_can_be_asked_for():
    assert set(Settings.model_fields["strategy"].annotation.__args__) == set(STRATEGIES)

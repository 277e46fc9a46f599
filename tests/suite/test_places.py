"""Which GPUs a run of a suite gets, and what it may take where several run at once."""

import pytest

from beamsearch.records.suite import Entry, Suite
from beamsearch.settings import Settings
from beamsearch.suite.budget import Used, settings_of_run
from beamsearch.suite.places import Place, Places, in_turn

FOUR = tuple(Place(f"GPU-{number}", "H100", number) for number in range(4))
MIXED = (Place("GPU-0", "H100", 0), Place("GPU-1", "A100", 1), Place("GPU-2", "A100", 2))


def numbers(places):
    return [place.number for place in places]


def test_runs_are_dealt_over_gpus_and_then_share_them():
    places, runs, dealt = Places(FOUR, 2), {}, []
    for _ in range(8):
        (place,) = places.for_next(None, runs, waiting=9, alone=False)
        runs[place] = runs.get(place, 0) + 1
        dealt.append(place.number)
    assert dealt == [0, 1, 2, 3, 3, 2, 1, 0]
    assert places.for_next(None, runs, waiting=9, alone=False) == ()


def test_the_last_problems_get_the_idle_gpus_in_equal_parts():
    places = Places(FOUR, 2)
    assert numbers(places.for_next(None, {}, waiting=1, alone=False)) == [0, 1, 2, 3]
    assert numbers(places.for_next(None, {}, waiting=2, alone=False)) == [0, 1]
    assert numbers(places.for_next(None, {FOUR[0]: 1}, waiting=1, alone=False)) == [1, 2, 3]


def test_what_cannot_be_dealt_evenly_has_a_second_gpu_that_others_use_too():
    places = Places(FOUR[:2], 2)
    runs = {FOUR[0]: 1, FOUR[1]: 1}
    assert numbers(places.for_next(None, runs, waiting=3, alone=False)) == [1]
    assert numbers(places.for_next(None, runs, waiting=2, alone=False)) == [1]
    assert numbers(places.for_next(None, runs, waiting=1, alone=False)) == [1, 0]
    assert places.for_next(None, dict.fromkeys(FOUR[:2], 2), waiting=1, alone=False) == ()
    busy, busier = dict.fromkeys(MIXED, 1), dict.fromkeys(MIXED, 2)
    assert numbers(Places(MIXED, 3).for_next(None, busier, waiting=1, alone=False)) == [0]
    assert numbers(Places(MIXED, 2).for_next("A100", busy, waiting=1, alone=False)) == [2, 1]


@pytest.mark.parametrize(
    ("problems", "expected"),
    [
        (6, [[0], [1], [1], [0], [0], [1]]),
        (5, [[0], [1], [1], [0], [0, 1]]),
        (3, [[0], [1], [1, 0]]),
    ],
)
def test_all_begin_for_whom_there_is_room(problems, expected):
    places, dealt = Places(FOUR[:2], 3), []
    for waiting in range(problems, 0, -1):
        runs = places.in_use((given, False) for given in dealt)
        dealt.append(places.for_next(None, runs, waiting, alone=False))
    assert [numbers(given) for given in dealt] == expected
    full = dict.fromkeys(FOUR[:2], 3)
    assert places.for_next(None, full, waiting=1, alone=False) == ()


def test_the_last_as_many_as_gpus_wait_for_nobodys_end():
    places, full = Places(FOUR[:2], 2, last_too=True), dict.fromkeys(FOUR[:2], 2)
    assert places.for_next(None, full, waiting=3, alone=False) == ()
    assert numbers(places.for_next(None, full, waiting=2, alone=False)) == [0]
    assert numbers(places.for_next(None, full, waiting=1, alone=False)) == [0, 1]
    assert numbers(places.for_next(None, full | {FOUR[0]: 3}, waiting=1, alone=False)) == [1]
    assert places.for_next(None, dict.fromkeys(FOUR[:2], 3), waiting=1, alone=False) == ()
    # One that takes too much memory beside others waits all the same
    assert places.for_next(None, full, waiting=1, alone=True) == ()


def test_as_many_as_asked_for_share_all_gpus():
    places, nobody = Places(FOUR, 1, most=1), {}
    assert numbers(places.for_next(None, nobody, waiting=9, alone=False)) == [0, 1, 2, 3]
    assert places.for_next(None, nobody, waiting=8, alone=False, going=1) == ()


def test_a_gpu_that_is_anothers_second_is_not_idle_and_one_alone_fills_all_of_its_own():
    places = Places(FOUR[:2], 2)
    assert places.in_use([(FOUR[:2], False)]) == {FOUR[0]: 1, FOUR[1]: 0}
    assert places.for_next(None, places.in_use([(FOUR[:2], False)]), 1, alone=True) == ()
    for other in (places, Places(FOUR[:2], 2, last_too=True)):
        alone = other.in_use([(FOUR[:2], True)])
        assert other.for_next(None, alone, waiting=1, alone=False) == ()


def test_what_failed_beside_another_waits_for_a_gpu_of_its_own():
    places = Places(FOUR[:1], 2)
    assert places.for_next(None, {FOUR[0]: 1}, waiting=1, alone=True) == ()
    assert numbers(places.for_next(None, {}, waiting=1, alone=True)) == [0]


def test_a_run_is_on_gpus_of_one_kind_and_goes_on_on_that_kind():
    places = Places(MIXED, 1)
    assert numbers(places.for_next(None, {}, waiting=1, alone=False)) == [1, 2]
    assert numbers(places.for_next("H100", {}, waiting=1, alone=False)) == [0]
    assert places.for_next("H100", {MIXED[0]: 1}, waiting=1, alone=False) == ()


def test_without_gpus_so_many_run_at_once_as_are_asked_for():
    places = Places(runs_each=2)
    here = places.all[0]
    assert places.for_next(None, {}, waiting=3, alone=False) == (here,)
    assert places.for_next(None, {here: 1}, waiting=2, alone=False) == (here,)
    assert places.for_next(None, {here: 2}, waiting=1, alone=False) == ()


def test_whoever_had_least_is_next_in_the_order_of_the_list():
    used = [Used(5.0), Used(0.0), Used(0.0), Used(2.0)]
    assert in_turn([0, 1, 2, 3], used) == [1, 2, 3, 0]


def test_runs_at_once_share_what_others_were_not_promised():
    entries = [Entry(name=name, path=name) for name in "abcd"]
    suite = Suite(settings=Settings(time_limit_s=100.0), entries=entries)
    nothing = [Used()] * 4
    first = settings_of_run(suite, 0, nothing, at_once=2)
    assert first.time_limit_s == 200 / 4 * 1.25
    promised = {0: Used(first.time_limit_s)}
    second = settings_of_run(suite, 1, nothing, promised=promised, at_once=2)
    assert second.time_limit_s == (200 - 62.5) / 3 * 1.25
    last = [Used(10.0), Used(10.0), Used(10.0), Used()]
    done = suite
    for number in range(3):
        done = done.with_entry(number, state="finished")
    assert settings_of_run(done, 3, last, at_once=2).time_limit_s == 100.0

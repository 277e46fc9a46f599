"""Which lane a job goes to, decided without one."""

import pytest

from beamsearch.executor.client import LaneDied
from beamsearch.executor.dispatch import (
    Load,
    lane_alone,
    lane_for,
    lane_to_prepare,
    next_job,
    verdict_on,
    work_of,
)
from beamsearch.records.job import CompareJob, JudgeJob, ProfileJob, Subject, SweepJob
from beamsearch.records.verdict import Outcome


def kernel(name):
    return Subject(name=name, source=f"source of {name}")


def judge(name, **more):
    return JudgeJob(subject=kernel(name), **more)


EAGER = Subject(name="eager", kind="eager")


def test_what_is_known_nowhere_goes_where_the_least_is_to_do():
    assert lane_for(judge("a"), [Load(work=2), Load(work=1)], {}) == 1
    assert lane_for(judge("a"), [Load(work=1), Load(work=1)], {}) == 0
    assert lane_for(judge("a"), [Load(promised=2), Load(work=1)], {}) == 1


def test_a_kernel_is_judged_where_it_is_prepared_unless_that_lane_has_much_to_do():
    homes = {"source of a": 0}
    assert lane_for(judge("a"), [Load(work=1), Load()], homes) == 0
    assert lane_for(judge("a"), [Load(work=2), Load()], homes) == 1
    compared = CompareJob(subjects=[kernel("a")])
    assert lane_for(compared, [Load(work=2), Load()], homes) == 0
    assert lane_for(judge("a", thorough=True), [Load(work=2), Load()], homes) == 0


def test_a_profile_goes_where_there_is_less_to_do_and_an_autotuned_one_to_its_own_lane():
    homes = {"source of a": 0, "@triton.autotune of b": 0}
    plain = ProfileJob(subject=kernel("a"))
    tuned = ProfileJob(subject=Subject(name="b", source="@triton.autotune of b"))
    for job in (plain, tuned):
        assert lane_for(job, [Load(work=2), Load()], homes) == 0
        assert lane_for(job, [Load(work=4), Load(work=4)], homes) is None
    busy = [Load(work=work_of(plain) + 1), Load()]
    assert lane_for(plain, busy, homes) == 1
    assert lane_for(tuned, busy, homes) is None
    left = [Load(is_closed=True), Load()]
    assert lane_for(tuned, left, homes) == 1, "a lane that is gone is not waited for"


def test_lanes_that_share_what_they_know_take_each_others_jobs():
    homes = {"source of a": 0, "@triton.autotune of b": 0}
    tuned = ProfileJob(subject=Subject(name="b", source="@triton.autotune of b"))
    for job in (judge("a"), judge("a", thorough=True), tuned, CompareJob(subjects=[kernel("a")])):
        assert lane_for(job, [Load(work=1), Load()], homes, share=True) == 1
        assert lane_for(job, [Load(work=1), Load(work=1)], homes, share=True) == 0
    busy = [Load(work=4), Load(work=1)]
    assert next_job([tuned], busy, homes) is None
    assert next_job([tuned], busy, homes, share=True) == (0, 1)
    assert lane_for(CompareJob(subjects=[EAGER]), [Load(work=3), Load()], {}, share=True) == 0


def test_a_thorough_judgement_counts_as_what_it_takes():
    assert work_of(judge("a", thorough=True)) > work_of(ProfileJob(subject=kernel("a")))


def test_several_kernels_are_compared_where_most_of_them_are_known():
    homes = {"source of a": 0, "source of b": 1, "source of c": 1}
    for kind in (CompareJob, SweepJob):
        job = kind(subjects=[kernel("a"), kernel("b"), kernel("c")])
        assert lane_for(job, [Load(), Load(work=1)], homes) == 1


def test_the_reference_is_timed_on_the_first_lane_and_holds_up_no_judgement():
    job = CompareJob(subjects=[EAGER, kernel("b")])
    loads = [Load(work=3), Load()]
    assert lane_for(job, loads, {"source of b": 1}) == 0
    assert lane_to_prepare(EAGER, loads, {}) == 0
    assert lane_to_prepare(kernel("b"), [Load(work=8), Load(work=7)], {}) == 1


def test_a_closed_lane_takes_nothing_and_where_all_are_a_job_waits():
    homes = {"source of a": 0}
    assert lane_for(judge("a"), [Load(is_closed=True), Load(work=3)], homes) == 1
    assert lane_for(CompareJob(subjects=[EAGER]), [Load(is_closed=True), Load()], {}) == 1
    assert lane_for(judge("a"), [Load(is_closed=True)], homes) is None


def test_a_lane_with_much_to_do_is_given_nothing_yet():
    busy = [Load(work=4), Load(work=4)]
    assert lane_for(judge("a"), busy, {}) is None
    assert lane_for(CompareJob(subjects=[kernel("a")]), busy, {}) is None
    assert lane_for(judge("a"), busy, {}, later=True) == 0 == lane_to_prepare(kernel("a"), busy, {})


def test_what_an_earlier_round_waits_for_begins_first():
    profile = ProfileJob(round=2, subject=kernel("a"))
    compare = CompareJob(round=2, subjects=[kernel("b"), kernel("c")])
    waiting = [judge("d", round=3), profile, judge("e", round=2), compare]
    order, loads = [], [Load(), Load()]
    while waiting:
        place, lane = next_job(waiting, loads, {})
        job = waiting.pop(place)
        order.append(job)
    assert order == [compare, judge("e", round=2), profile, judge("d", round=3)]
    assert next_job([], loads, {}) is None


def test_a_job_that_waits_for_a_lane_keeps_it_from_those_behind_it():
    profile = ProfileJob(round=1, subject=kernel("a"))
    behind, homes = judge("b", round=2), {"source of a": 1, "autotune": 1}
    assert next_job([behind], [Load(work=3), Load(work=4)], {}) == (0, 0)
    busy = [Load(work=4), Load(work=4)]
    assert next_job([behind, profile], busy, homes) is None
    assert next_job([behind, profile], [Load(work=4), Load(work=3)], homes) == (1, 1)
    tuned = ProfileJob(round=1, subject=Subject(name="t", source="autotune"))
    loads = [Load(work=3), Load(work=4)]
    assert next_job([behind, tuned], loads, homes) == (0, 0), "it waits for its own lane alone"
    loads = [Load(work=4), Load(work=3)]
    assert next_job([tuned, behind], loads, homes) == (0, 1)


def test_what_was_on_a_lane_that_died_runs_on_another_where_there_is_one():
    assert lane_alone([Load(), Load(work=3)], [0]) == 1
    assert lane_alone([Load()], [0]) == 0
    assert lane_alone([Load(is_closed=True)], []) is None


def test_deaths_become_the_answer_of_a_job_that_may_have_one():
    deaths = [LaneDied("one: killed"), LaneDied("two: killed")]
    crashed = verdict_on(judge("a"), deaths).verdict
    assert (crashed.outcome, "two: killed" in crashed.reason) == (Outcome.CRASHED, True)
    hung = [*deaths, LaneDied("two: it was silent", hung=True)]
    assert verdict_on(judge("a"), hung).verdict.outcome is Outcome.TIMEOUT
    assert list(verdict_on(CompareJob(subjects=[kernel("a")]), deaths).failed) == ["a"]
    assert list(verdict_on(SweepJob(subjects=[kernel("a")]), deaths).failed) == ["a"]
    with pytest.raises(LaneDied, match="two"):
        verdict_on(ProfileJob(subject=kernel("a")), deaths)

"""Which way a worker is sent: the next finding, the next plan, a plan whose code failed again."""

import pytest

from beamsearch.records.candidate import OPEN, Direction
from beamsearch.records.verdict import Outcome
from beamsearch.search.directions import Origin, deal
from kernel_profiling.profile import FindingKind
from tests.search.made import CORRECT, candidate, failed, finding

LATENCY, SPILLS, TAIL = FindingKind.LATENCY, FindingKind.SPILLS, FindingKind.TAIL
FOUND = {"k": [finding(kind) for kind in (LATENCY, SPILLS, TAIL)]}


def directions(workers, history=()):
    return [a.direction for a in deal(["k"] * workers, FOUND, history).assignments]


def tried(round_number, worker, direction, *verdicts):
    return [
        candidate(
            f"r{round_number}-w{worker}-v{n}",
            round=round_number,
            worker=worker,
            parent="k",
            direction=direction,
            verdict=verdict,
        )
        for n, verdict in enumerate(verdicts)
    ]


def test_with_one_parent_every_worker_goes_after_another_finding():
    assert directions(4) == [
        Direction(finding=LATENCY),
        Direction(finding=SPILLS),
        Direction(finding=TAIL),
        Direction(finding=LATENCY, plan=1),
    ]


def test_one_of_several_workers_has_no_direction_where_prompts_are_read():
    plan = deal(["k"] * 3, FOUND, [], free=True)
    assert [a.direction.finding for a in plan.assignments] == [LATENCY, SPILLS, OPEN]
    later = tried(1, 2, Direction(finding=OPEN), CORRECT)
    assert deal(["k"] * 3, FOUND, later, free=True).assignments[2].direction.plan == 1
    (alone,) = deal(["k"], FOUND, [], free=True).assignments
    assert alone.direction.finding == LATENCY


def test_every_worker_knows_where_the_others_go():
    plan = deal(["k"] * 3, FOUND, [])
    assert plan.assignments[1].others == [f"k: {LATENCY}", f"k: {TAIL}"]
    assert deal(["k"], FOUND, []).assignments[0].others == []


def test_a_direction_waits_until_the_others_had_their_turn():
    history = tried(1, 0, Direction(finding=LATENCY), CORRECT)
    assert [d.finding for d in directions(3, history)] == [SPILLS, TAIL, LATENCY]


def test_a_plan_whose_code_failed_is_tried_once_more_after_the_others():
    broken = tried(1, 0, Direction(finding=LATENCY), failed(Outcome.COMPILE_ERROR))

    # Given a plan that did not compile, when its finding's turn comes, it is given again
    plan = deal(["k"] * 3, FOUND, broken)
    assert [a.direction.finding for a in plan.assignments] == [SPILLS, TAIL, LATENCY]
    again = plan.assignments[2]
    assert again.direction == Direction(finding=LATENCY, plan=0, again=True)
    assert again.plan_of == Origin(round=1, worker=0)

    # And once only, however that ends: then comes the next plan
    failed_again = broken + tried(2, 2, again.direction, failed(Outcome.WRONG))
    failed_again += tried(2, 0, Direction(finding=SPILLS), CORRECT)
    failed_again += tried(2, 1, Direction(finding=TAIL), CORRECT)
    assert directions(3, failed_again)[2] == Direction(finding=LATENCY, plan=1)


@pytest.mark.parametrize(
    ("verdicts", "again"),
    [
        ([failed(Outcome.WRONG)], True),
        ([failed(Outcome.CRASHED), failed(Outcome.NO_CODE)], True),
        ([failed(Outcome.WRONG), CORRECT], False),
        ([CORRECT], False),  # slow or not: the plan has shown what it is worth
        ([failed(Outcome.TIMEOUT)], False),
        ([failed(Outcome.DISALLOWED)], False),
        ([failed(Outcome.DUPLICATE)], False),
        ([failed(Outcome.NO_CODE)], False),
    ],
)
def test_only_code_that_failed_earns_a_plan_another_try(verdicts, again):
    history = tried(1, 0, Direction(finding=LATENCY), *verdicts)
    history += tried(1, 1, Direction(finding=SPILLS), CORRECT)
    history += tried(1, 2, Direction(finding=TAIL), CORRECT)
    expected = Direction(finding=LATENCY, plan=0 if again else 1, again=again)
    assert directions(1, history) == [expected]


def test_a_parent_without_findings_has_directions_too():
    plan = deal(["k"] * 5, {"k": [finding(FindingKind.AT_FLOOR)]}, [])
    assert len({str(a.direction) for a in plan.assignments}) == 5
    assert FindingKind.AT_FLOOR not in [a.direction.finding for a in plan.assignments]


def test_a_direction_says_which_try_it_is():
    assert str(Direction(finding="tail", plan=1, again=True)) == "tail, plan 2 once more"


def test_what_others_do_at_the_same_time_is_not_given_again():
    beside = deal(["k"] * 2, FOUND, []).assignments
    later = deal(["k"] * 2, FOUND, [], beside=beside).assignments
    assert [a.direction for a in later] == [
        Direction(finding=TAIL),
        Direction(finding=LATENCY, plan=1),
    ]

"""What plans expected, how different they are, and which other way is tried beside one."""

import pytest

from beamsearch.proposer.questions import Diagnosis, Sketch
from beamsearch.records.packed import opened_run
from beamsearch.run.plans import expectations, other_way, plans
from beamsearch.search.difference import kernels_apart, plans_apart, spread
from tests import ROOT

PLAN = "keep the rows in registers and reduce them once"
SAME = "keep rows in registers, reduce once"
OTHER = "split the reduction over programs, with atomics on a small workspace"


def planned(*sketches: tuple[str, float | None]) -> Diagnosis:
    told = [Sketch(idea=idea, expected_speedup=gain) for idea, gain in sketches]
    return Diagnosis(bottleneck="", cause="", evidence=[], plan=PLAN, sketches=told)


@pytest.mark.parametrize(
    ("sketches", "known", "chosen"),
    [
        ([(SAME, 1.5), (OTHER, 1.5)], [], OTHER),  # the same gain: what differs more
        ([(SAME, 3.0), (OTHER, 1.05)], [], SAME),  # a little difference and much gain
        ([(SAME, 1.5), (OTHER, 1.5)], [OTHER], SAME),  # it was tried
        ([(OTHER, 0.9)], [], None),  # it expects a loss
        ([(PLAN, 2.0)], [], None),  # it is the plan
        ([(OTHER, None)], [], OTHER),
        ([], [], None),
    ],
)
def test_the_other_way_is_the_one_that_gains_much_and_differs_much(sketches, known, chosen):
    found = other_way(planned(*sketches), known)
    assert (found and found.idea) == chosen


def test_difference_is_nothing_for_the_same_and_all_for_nothing_in_common():
    assert plans_apart(PLAN, PLAN.upper()) == 0
    assert plans_apart("one two three", "four five six") == 1
    assert plans_apart("load rows once", "load rows twice") == pytest.approx(0.5)
    assert kernels_apart("a\nb\nc\nd\n", "a\nb\nx\ny\n") == pytest.approx(0.5)
    assert spread([PLAN], plans_apart) is None
    assert spread([PLAN, PLAN, OTHER], plans_apart) == pytest.approx(
        2 / 3 * plans_apart(PLAN, OTHER)
    )


def test_expectations_are_those_of_the_rounds_before():
    trace = opened_run(ROOT / "artifacts" / "claude" / "43_Max_Pooling_3D")
    first = {worker: plan.expected_speedup for worker, plan in plans(trace, 1).items()}
    assert len(first) > 1 and all(first.values())
    assert expectations(trace, 1) == {}
    assert expectations(trace, 2) == {(1, worker): gain for worker, gain in first.items()}

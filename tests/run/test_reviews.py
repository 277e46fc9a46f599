"""When reviews are believed, and when they end."""

import pytest

from beamsearch.records.candidate import Candidate, Forecast
from beamsearch.records.verdict import Check, Outcome, Stage, Verdict
from beamsearch.run.review import believed, pays, score


def reviewed(count, fails, outcome):
    if outcome is Outcome.CORRECT:
        verdict = Verdict(outcome=outcome, checks=[Check(stage=Stage.SMOKE, name="a", passed=True)])
    else:
        verdict = Verdict(outcome=outcome, stage=Stage.SMOKE, reason="so")
    return [
        Candidate(
            name=f"r1-w{n}-v0",
            round=1,
            description="",
            author="m",
            verdict=verdict,
            forecast=Forecast(fails=fails),
        )
        for n in range(count)
    ]


def right(count):
    return reviewed(count, True, Outcome.WRONG)


def false_alarms(count):
    return reviewed(count, True, Outcome.CORRECT)


def missed(count):
    return reviewed(count, False, Outcome.CRASHED)


NAMES = [f"r{r}-w{w}-v{v}" for r in range(5) for w in range(4) for v in range(5)]


def test_only_what_was_reviewed_and_judged_counts():
    others = [
        *reviewed(3, True, Outcome.SET_ASIDE),
        *reviewed(2, True, Outcome.DUPLICATE),
        *(c.model_copy(update={"forecast": None}) for c in missed(5)),
    ]
    passed = reviewed(4, False, Outcome.CORRECT)
    known = score([*right(2), *false_alarms(1), *missed(1), *passed, *others])
    assert known.model_dump() == {
        "judged": 8, "flags": 3, "right": 2, "failures": 3, "missed": 1, "set_aside": 3,
    }  # fmt: skip


def test_flags_are_believed_after_probation_but_for_a_control():
    assert not any(believed(score(right(3)), name) for name in NAMES)
    assert not any(believed(score([*right(5), *false_alarms(2)]), name) for name in NAMES)
    share = sum(believed(score(right(4)), name) for name in NAMES) / len(NAMES)
    assert 0.6 < share < 0.9


@pytest.mark.parametrize(
    ("seen", "on"),
    [
        ([], True),
        (false_alarms(7), True),
        ([*false_alarms(5), *right(3)], False),
        ([*false_alarms(4), *right(4)], True),
        ([*missed(7), *right(1)], False),
        ([*missed(6), *right(2)], True),
    ],
)
def test_reviews_end_where_they_do_not_pay(seen, on):
    assert pays(score(seen)) is on

"""Each reason to stop, and that none comes early."""

from beamsearch.records.round import RoundRecord
from beamsearch.records.verdict import Outcome
from beamsearch.search.stopping import Limits, stop_reason
from tests.search.made import CORRECT, candidate, failed

EIGHT = Limits(rounds=8)


def rounds(*outcomes, wins=()):
    made = [
        RoundRecord(round=0, candidates=[candidate("r0-s0")], beam=["r0-s0"], running_best="r0-s0")
    ]
    for number, outcome in enumerate(outcomes, 1):
        verdict = CORRECT if outcome is Outcome.CORRECT else failed(outcome)
        made.append(
            RoundRecord(
                round=number,
                candidates=[candidate(f"r{number}-w0-v0", verdict=verdict)],
                win=number in wins,
                beam=["r0-s0"],
                running_best="r0-s0",
            )
        )
    return made


GOOD, BAD = Outcome.CORRECT, Outcome.WRONG


def test_nothing_stops_a_run_that_goes_well():
    assert stop_reason(rounds(), EIGHT) is None
    assert stop_reason(rounds(BAD), EIGHT, speedup=9.0) is None


def test_the_floor_the_rounds_the_time_and_silence():
    near = Limits(rounds=8, floor_margin=0.05)
    assert "within 5% of the floor (1.04" in stop_reason(rounds(), near, multiple_of_floor=1.04)
    assert stop_reason(rounds(), near, multiple_of_floor=1.06) is None
    assert "(~1.00 times" in stop_reason(rounds(), near, modelled=True, multiple_of_floor=1.0)
    assert stop_reason(rounds(), EIGHT, multiple_of_floor=0.99) is None  # not asked for
    assert "2 rounds" in stop_reason(rounds(BAD, GOOD), Limits(rounds=2))
    assert stop_reason(rounds(BAD), Limits(rounds=1)) == "the one round is done"
    assert "win in 1 round " in stop_reason(rounds(BAD), Limits(rounds=2, patience=1))
    assert "time" in stop_reason(rounds(), EIGHT, out_of_time=True)
    none = Outcome.NO_CODE
    assert stop_reason(rounds(GOOD, none), EIGHT) is None  # a beam tries another parent now
    assert "nothing new" in stop_reason(rounds(GOOD, none, Outcome.DUPLICATE), EIGHT)
    assert stop_reason(rounds(none, none), Limits(rounds=8, quiet=False)) is None


def test_a_speedup_that_was_asked_for():
    asked = Limits(rounds=8, target_speedup=2.0)
    assert stop_reason(rounds(), asked, speedup=1.99) is None
    assert stop_reason(rounds(), asked) is None
    assert stop_reason(rounds(), asked, speedup=2.0).startswith("2.00 times as fast")
    assert stop_reason(rounds(), asked, speedup=2.0, modelled=True).startswith("~2.00 times")


def test_patience_counts_from_the_last_win():
    three = Limits(rounds=8, patience=3)
    assert stop_reason(rounds(GOOD, BAD), three) is None
    assert "3 rounds" in stop_reason(rounds(GOOD, BAD, BAD), three)
    assert stop_reason(rounds(GOOD, GOOD, BAD, BAD, wins=[2]), three) is None
    assert "no confirmed win" in stop_reason(rounds(GOOD, GOOD, BAD, BAD, BAD, wins=[2]), three)


def test_candidates_are_not_passed():
    ten = Limits(rounds=8, candidates=10)
    done = rounds(*[GOOD] * 7)
    assert ten.workers(done, 4, 2) == 1  # a second worker's variants would be 11
    assert ten.workers(done, 4, 1) == 3
    assert EIGHT.workers(done, 4, 2) == 4
    assert stop_reason(done, ten, variants=2) is None
    assert "7 candidates made, of at most 10" in stop_reason(done, ten, variants=4)

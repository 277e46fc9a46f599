"""A kernel that a person gave has a place in the beam, where it is near the best."""

import pytest

from beamsearch.records.candidate import PERSON
from beamsearch.search.pairs import Ratio
from beamsearch.search.strategies import STRATEGIES, State, settle
from tests.search.made import candidate


def persons(time_ms, name="r2-p0", **more):
    return candidate(name, time_ms, **more).with_values(author=PERSON)


def beam(given, k=2, strategy="beam", others=(("r1-w0-v0", 1.0), ("r1-w1-v0", 1.01))):
    before = [
        candidate("r0-s0", 3.0, round=0),
        *(candidate(n, t, parent="r0-s0") for n, t in others),
    ]
    everyone = [*before, *given]
    standing = settle(
        STRATEGIES[strategy],
        before[1:],
        given,
        before[1],
        times={c.name: c.measurement.time_ms for c in everyone if c.measurement},
        k=k,
        families={},
        confirm=lambda faster, running: {
            c.name: Ratio.of(c.time_ms / running.time_ms) for c in faster
        },
    )
    return standing.beam


@pytest.mark.parametrize(
    ("time_ms", "kept"),
    [
        (0.5, ["r2-p0", "r1-w0-v0"]),
        (1.005, ["r1-w0-v0", "r2-p0"]),
        (1.24, ["r1-w0-v0", "r2-p0"]),
        (1.26, ["r1-w0-v0", "r1-w1-v0"]),
    ],
)
def test_it_has_the_last_place_within_reach(time_ms, kept):
    assert beam([persons(time_ms)]) == kept


def test_one_of_several_and_none_in_a_beam_of_one():
    slow, slower = persons(1.2), persons(1.22, "r2-p1")
    assert beam([slower, slow]) == ["r1-w0-v0", "r2-p0"]
    assert beam([slow], k=1) == ["r1-w0-v0"]
    assert beam([slow], k=3) == ["r1-w0-v0", "r1-w1-v0", "r2-p0"]
    assert beam([slow], strategy="greedy") == ["r1-w0-v0"]


def test_it_is_no_first_kernel_to_start_afresh_from():
    first, mine = candidate("r0-s0", 3.0, round=0), persons(1.0)
    state = State(
        round=3,
        workers=3,
        seed=0,
        candidates=[first, mine],
        times={"r0-s0": 3.0, "r2-p0": 1.0},
        beam=["r2-p0"],
        best="r2-p0",
        stalled=True,
    )
    assert STRATEGIES["beam"].parents(state) == ["r2-p0", "r2-p0", "r0-s0"]

"""What timed calls are on, how many there are, and which times are believed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from beamsearch.errors import BeamsearchError
from beamsearch.gpu.stopwatch import QUEUED
from beamsearch.judge.rejection import Rejected
from beamsearch.judge.sandbox.memory import SharedMemory
from beamsearch.judge.timing import timing
from beamsearch.judge.timing.timing import Clocks, Sample, Shared, repetitions, undisturbed
from beamsearch.judge.verification.inputs import InputSet, InputSets
from beamsearch.problem.instance import instantiate
from beamsearch.problem.problem import Problem
from beamsearch.problem.shrink import shrink
from beamsearch.records.verdict import Outcome

FLUSH_MS = 0.1


@pytest.fixture
def timed(scale_problem: Problem) -> Iterator[InputSet]:
    sets = InputSets(shrink(scale_problem), SharedMemory("cpu"), 7)
    inputs = sets.draw(1)[0]
    with inputs.handout() as inputs.shared:
        yield inputs
        inputs.shared = None


def values(timed: InputSet) -> list[torch.Tensor]:
    return [place.words().clone() for place in timed.shared.inputs]


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> list[bool]:
    return [torch.equal(a, b) for a, b in zip(one, other, strict=True)]


def test_each_timed_call_is_on_values_that_were_never_there(timed: InputSet) -> None:
    before, seed = values(timed), timed.seed
    seen = [before]
    for _ in range(3):
        timed.renew()
        assert not any(all(same(values(timed), earlier)) for earlier in seen)
        seen.append(values(timed))
    timed.renew(seed)
    assert all(same(values(timed), before))


def test_the_oracle_is_that_of_the_values_that_are_there(timed: InputSet) -> None:
    timed.renew()
    timed.expect()
    instance = instantiate(timed.sets.problem, "cpu", timed.seed, timed.distribution)
    wanted = instance.model.double()(instance.inputs[0].double())
    assert torch.allclose(timed.expected[0].oracle.double(), wanted, rtol=1e-6)


def test_a_set_that_was_timed_is_handed_out_with_its_own_oracle_and_sums(timed: InputSet) -> None:
    timed.renew()
    assert timed.shared.changed()
    with timed.handout() as handout:
        assert not handout.changed()
    instance = instantiate(timed.sets.problem, "cpu", timed.seed, timed.distribution)
    wanted = instance.model.double()(instance.inputs[0].double())
    assert torch.allclose(timed.expected[0].oracle.double(), wanted, rtol=1e-6)
    timed.shared.inputs[0].words()[-1] ^= 1
    with timed.handout() as handout:
        assert handout.changed(), "what was written since still shows"


def test_what_a_timed_call_writes_into_its_inputs_shows(timed: InputSet) -> None:
    timed.renew()
    timed.expect()
    assert not timed.shared.changed()
    timed.shared.inputs[0].words()[-1] ^= 1  # in the guard behind it
    assert timed.shared.changed()
    timed.repair()
    assert not timed.shared.changed()


@pytest.mark.parametrize(
    ("estimate_ms", "count"),
    [(1e-9, 40), (0.5, 40), (1.0, 25), (20.0, 10), (30.0, 10), (31.0, 3), (1000.0, 3)],
)
def test_calls_fit_the_time_that_a_candidate_is_given(estimate_ms: float, count: int) -> None:
    assert repetitions(estimate_ms) == count


def alone(count: int) -> list[float]:
    return [(QUEUED + 1) * FLUSH_MS] * count


def series(ms: float, beside_ms: float, count: int = 20) -> list[Sample]:
    return [Sample(ms, ms + beside_ms) for _ in range(count)]


@pytest.mark.parametrize(
    "samples",
    [
        series(1.0, 0.01),
        series(1.0, (QUEUED + 1) * FLUSH_MS),
        series(0.001, (QUEUED + 1) * FLUSH_MS),
        [*series(0.01, 0.1), Sample(0.01, 25.0)],  # the host paused once
    ],
    ids=["bare", "flushes", "short", "hiccup"],
)
def test_events_that_fit_the_clock_are_believed(samples: list[Sample]) -> None:
    Clocks().believe(samples, FLUSH_MS, alone)


@pytest.mark.parametrize(
    "samples",
    [series(2.0, -1.0), series(0.001, 10.0), [Sample(0.1, 20.0)] * 20],
    ids=["longer than the clock", "ten times shorter", "events patched"],
)
def test_events_that_never_fit_the_clock_are_refused(
    samples: list[Sample], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing.time, "sleep", lambda _: None)
    clocks, measured = Clocks(), []

    def measure() -> None:
        measured.append(samples)
        clocks.believe(samples, FLUSH_MS, alone)

    with pytest.raises(Rejected, match="does not fit, 3 times") as raised:
        undisturbed(measure)
    assert raised.value.outcome is Outcome.DISALLOWED
    assert len(measured) == 3


def test_a_series_beside_busy_cores_is_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As seen on two H200s beside four runs: 25 calls of 26 ms took 94 ms by the clock, and calls
    of nothing were as quick as ever a moment later."""
    monkeypatch.setattr(timing.time, "sleep", lambda _: None)
    clocks = Clocks()
    taken = [[Sample(1.06, 3.76)] * 25, series(1.06, 0.01, 25)]

    def measure() -> list[Sample]:
        samples = taken.pop(0)
        clocks.believe(samples, FLUSH_MS, alone)
        return samples

    assert undisturbed(measure) == series(1.06, 0.01, 25), "none of the first is counted"
    with pytest.raises(Shared):
        Clocks().believe([Sample(1.06, 3.76)] * 25, FLUSH_MS, alone)


def test_a_gpu_that_others_use_is_no_fault_of_the_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """As seen on an H200 beside an endless kernel: each turn of the GPU takes 2 ms."""
    slept: list[float] = []
    monkeypatch.setattr(timing.time, "sleep", slept.append)
    disturbed = [True, True, False]
    clocks = Clocks()

    def empty(count: int) -> list[float]:
        return [2.65] * count

    def measure() -> str:
        if disturbed.pop(0):
            clocks.believe([Sample(0.05, 2.65)] * 40, FLUSH_MS, empty)
        return "measured"

    assert undisturbed(measure) == "measured"
    assert slept == [1.0, 5.0]
    disturbed = [True] * 4
    with pytest.raises(BeamsearchError, match=r"something else uses the GPU.*106 ms.*nvidia-smi"):
        undisturbed(measure)

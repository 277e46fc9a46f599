"""The values of timed calls, and which of their results are compared."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from beamsearch.judge.rejection import Rejected
from beamsearch.judge.runner.client import Replay
from beamsearch.judge.sandbox.memory import GUARD_BYTES, SharedMemory
from beamsearch.judge.timing.timing import MISSED, checked_share, time_calls
from beamsearch.judge.verification.inputs import InputSet, InputSets
from beamsearch.problem.problem import Problem
from beamsearch.problem.shrink import shrink


@contextmanager
def timed_inputs(problem: Problem) -> Iterator[InputSet]:
    sets = InputSets(shrink(problem), SharedMemory("cpu"), 7)
    (inputs,) = sets.draw(1)
    with inputs.handout() as handout:
        inputs.shared = handout
        yield inputs


def first_value(timed: InputSet) -> torch.Tensor:
    data = timed.shared.inputs[0].view(torch.uint8, (GUARD_BYTES + 64,))[GUARD_BYTES:]
    return data.view(torch.bfloat16).clone()


def test_an_oracle_made_after_the_call_is_that_of_the_values_it_had(scale_problem: Problem) -> None:
    with timed_inputs(scale_problem) as timed:
        before = timed.expected[0].oracle
        timed.renew()
        assert timed.expected[0].oracle.is_meta, "its memory is free for others"
        values = first_value(timed)
        timed.expect()
        assert (first_value(timed) == values).all()
        (item,) = timed.expected
        again = timed.anew()
        assert torch.allclose(item.oracle, again.reference().float(), rtol=1e-2)
        assert not torch.allclose(item.oracle, before, rtol=1e-2)


def test_what_is_written_to_renewed_inputs_is_seen(scale_problem: Problem) -> None:
    with timed_inputs(scale_problem) as timed:
        timed.renew()
        timed.expect()
        assert not timed.shared.changed()
        timed.renew()
        timed.shared.inputs[0].view(torch.uint8, (GUARD_BYTES + 1,))[-1] ^= 1
        timed.expect()
        assert timed.shared.changed(), "by the values that ought to be there"


class Skipping:
    """Stands for a runner whose kernel computes in its first calls, and then no more. It notes
    which call it is in, as a kernel can in memory of its own."""

    def __init__(self, timed: InputSet, right: int) -> None:
        self.timed, self.right = timed, right
        self.calls = 0

    def ask(self, op: str, timeout_s: float, **arguments: Any) -> dict[str, Any]:
        if op == "time":
            self.calls += 1
            return {"ms": 1.0, "host_ms": 1.5}
        assert op == "collect"
        handout, (expected,) = self.timed.shared, self.timed.expected
        result = handout.results[0].view(torch.bfloat16, tuple(expected.oracle.shape))
        assert result.isnan().all(), "what is not written shows"
        if self.calls <= self.right:
            result.copy_(expected.oracle)
        told = {"type": "tensor", "shape": list(result.shape), "dtype": "bfloat16"}
        return {"results": [{**told, "stride": list(result.stride()), "device": "cpu"}]}


def test_a_kernel_that_leaves_out_every_later_call_is_caught(scale_problem: Problem) -> None:
    with timed_inputs(scale_problem) as timed:
        caught = 0
        for _ in range(20):
            replay = Replay(Skipping(timed, right=5), "kernel")  # type: ignore[arg-type]
            try:
                time_calls(replay, timed, 10, checked_share(10))
            except Rejected as rejection:
                caught += "in a timed call" in rejection.reason
        assert caught >= 18  # each is missed once in a thousand: three of twenty once in a million
        honest = Replay(Skipping(timed, right=10), "kernel")  # type: ignore[arg-type]
        assert len(time_calls(honest, timed, 10, checked_share(10))) == 10


@pytest.mark.parametrize("count", [3, 5, 10, 40, 100])
def test_half_of_the_calls_left_out_are_missed_once_in_a_thousand(count: int) -> None:
    assert (1 - checked_share(count)) ** (count / 2) == pytest.approx(MISSED)
    assert count * checked_share(count) < 14  # oracles, tens of milliseconds each

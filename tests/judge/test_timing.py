"""The sets that timed calls rotate through."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
import torch

from beamsearch.judge.inputs import GUARD_BYTES, InputSets
from beamsearch.judge.memory import SharedMemory
from beamsearch.judge.timing import TimedSets
from beamsearch.judge.verify import Rejected
from beamsearch.problem import Problem, shrink
from beamsearch.records.verdict import Outcome


def test_what_is_written_into_any_timed_set_is_blamed_and_repaired(scale_problem: Problem) -> None:
    sets = InputSets(shrink(scale_problem), "cpu", SharedMemory("cpu"), 7)
    inputs = sets.draw(2)
    timed = TimedSets(sets, inputs, [item.label for item in inputs], 0.1)
    with ExitStack() as stack:
        for item in inputs:
            item.shared = stack.enter_context(sets.handout(item))
        timed.renew()  # its values are then of another seed
        timed.check_unchanged()
        for item in inputs:
            assert item.shared is not None
            item.shared.inputs[0].view(torch.uint8, (GUARD_BYTES + 1,))[-1] ^= 1
            with pytest.raises(Rejected, match="changed its inputs") as raised:
                timed.check_unchanged()
            assert raised.value.outcome is Outcome.WRONG
            assert item.label in raised.value.reason
            timed.check_unchanged()

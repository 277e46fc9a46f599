"""A plan without launches, on the CPU: which memory it runs in, and what shows afterwards."""

import base64
import ctypes
import gc
import weakref

import pytest
import torch

from beamsearch.judge.runner.program import PlanMemory, PlanProgram
from beamsearch.judge.sandbox.memory import GUARD_BYTES
from beamsearch.records.plan import Buffer, Copy, Fill, Operation, Plan, View


def vector(buffer, count=4, dtype="float32", offset=0):
    return View(buffer=buffer, dtype=dtype, offset=offset, size=(count,), stride=(1,))


def plan(buffers, steps=(), results=()):
    return Plan(
        capability=90,
        triton="3.6.0",
        kernels=[],
        buffers=[Buffer.model_validate(buffer) for buffer in buffers],
        steps=list(steps),
        results=list(results),
    )


def storage(values):
    """An argument as the judge hands it out, behind its guard."""
    data = torch.tensor(values, dtype=torch.float32)
    room = torch.full((2 * GUARD_BYTES // 4 + len(values),), torch.nan)
    room[GUARD_BYTES // 4 : GUARD_BYTES // 4 + len(values)] = data
    return room.untyped_storage()


def bytes_of(values, dtype=torch.float32):
    return base64.b64encode(torch.tensor(values, dtype=dtype).numpy().tobytes()).decode()


GIVEN = {"role": "given", "bytes": 16, "given": 0}
MADE = {"role": "made", "bytes": 16}


def test_steps_run_in_order_on_the_arguments():
    constant = {"role": "constant", "bytes": 4, "data": bytes_of([10.0])}
    square = Operation(name="aten.pow.Tensor_Scalar", arguments=[vector(0), 2], targets=[vector(1)])
    one = View(buffer=2, dtype="float32", offset=0, size=(4,), stride=(0,))
    add = Operation(name="aten.add_.Tensor", arguments=[vector(1), one], targets=[vector(1)])
    half = View(buffer=1, dtype="float32", offset=2, size=(2,), stride=(1,))
    steps = [square, add, Fill(target=half, value=-1.0)]
    program = PlanProgram(
        plan([GIVEN, MADE, constant], steps, [vector(1)]), [], [storage([1, 2, 3, 4])], "cpu"
    )
    for _ in range(2):
        program.refresh(fresh=True)
        (result,) = program.enqueue()
        assert result.tolist() == [11.0, 14.0, -1.0, -1.0]
    assert program.computes
    assert program.broken_guards() == []


def test_memory_is_free_as_soon_as_nobody_has_the_program():
    # Given steps of every kind, and no collection of garbage, which comes when it comes
    square = Operation(name="aten.pow.Tensor_Scalar", arguments=[vector(0), 2], targets=[vector(1)])
    copy = Copy(target=vector(0, 2), source=vector(0, 2, offset=2))
    steps = [square, copy, Fill(target=vector(1), value=1.0)]
    gc.disable()
    try:
        program = PlanProgram(plan([GIVEN, MADE], steps), [], [storage([1, 2, 3, 4])], "cpu")
        program.enqueue()
        memory = weakref.ref(program._own[1].whole)
        del program
        assert memory() is None
    finally:
        gc.enable()


def test_a_result_that_is_an_argument_lies_on_the_judges_memory():
    given = storage([1, 2, 3, 4])
    steps = [Copy(target=vector(0, 2), source=vector(0, 2, offset=2))]
    program = PlanProgram(plan([GIVEN], steps, [vector(0)]), [], [given], "cpu")
    (result,) = program.enqueue()
    assert result.tolist() == [3.0, 4.0, 3.0, 4.0]
    assert result.untyped_storage().data_ptr() == given.data_ptr()
    assert not program.computes


def test_what_is_left_unwritten_is_no_number_or_far_too_large_and_nobody_knows_which():
    steps = [Fill(target=vector(0, 3), value=1.0)]
    program = PlanProgram(plan([MADE], steps, [vector(0)]), [], [], "cpu")
    seen = set()
    for _ in range(40):
        program.refresh(fresh=False)
        (result,) = program.enqueue()
        assert result[:3].tolist() == [1.0, 1.0, 1.0]
        assert result[3].isnan() or result[3] > 1e38
        seen.add(bool(result[3].isnan()))
    assert seen == {True, False}
    assert program.broken_guards() == []


def test_what_is_kept_lives_on_unless_it_is_made_anew():
    kept = {
        "role": "kept",
        "bytes": 16,
        "data": bytes_of([1, 2, 3, 4], torch.int32),
        "fills": [{"target": vector(0, 1, "int32").model_dump(), "value": 100}],
    }
    counter = vector(0, 4, "int32")
    count = Operation(name="aten.add_.Tensor", arguments=[counter, 1], targets=[counter])
    out = vector(1, 4, "int32")
    program = PlanProgram(
        plan([kept, MADE], [count, Copy(target=out, source=counter)], [out]), [], [], "cpu"
    )
    seen = []
    for fresh in (True, False, True):
        program.refresh(fresh)
        seen.append(program.enqueue()[0].tolist())
    assert seen == [[101, 3, 4, 5], [102, 4, 5, 6], [101, 3, 4, 5]]


def test_what_was_kept_as_garbage_is_other_garbage_each_time():
    memory = PlanMemory(plan([{"role": "kept", "bytes": 64}]), [], {}, "cpu")
    held = memory.tensor(vector(0, 64, "uint8"))
    seen = [held.tolist()]
    memory.refresh(fresh=False)
    assert held.tolist() == seen[0]
    memory.refresh(fresh=True)
    assert held.tolist() != seen[0]


def test_before_a_timed_call_only_garbage_is_made_anew():
    filled = {
        "role": "kept",
        "bytes": 4,
        "fills": [{"target": vector(0, 4, "uint8").model_dump(), "value": 7}],
    }
    memory = PlanMemory(plan([filled, {"role": "kept", "bytes": 64}]), [], {}, "cpu")
    workspace, garbage = memory.tensor(vector(0, 4, "uint8")), memory.tensor(vector(1, 64, "uint8"))
    before = garbage.tolist()
    workspace[1] = 9  # what a call that does not clean up leaves behind
    memory.refresh(fresh=False, garbage=True)
    assert workspace.tolist() == [7, 9, 7, 7]
    assert garbage.tolist() != before


def test_a_damaged_guard_or_constant_is_told_and_put_back():
    constant = {"role": "constant", "bytes": 2, "data": bytes_of([3, 4], torch.uint8)}
    memory = PlanMemory(plan([MADE, constant, {"role": "kept", "bytes": 3}]), [], {5: 8}, "cpu")
    assert memory.broken_guards() == []

    def spoil(address, value=0):
        ctypes.memset(address, value, 1)

    made, held, kept = memory.addresses
    spoil(made + 16)
    spoil(held)
    spoil(kept - 1, 0x7F)
    spoil(memory.scratch(5) + 8 + GUARD_BYTES - 1)
    assert memory.broken_guards() == [
        "buffer 0 (made)",
        "buffer 2 (kept)",
        "global scratch of step 5",
        "buffer 1 (constant), written to",
    ]
    memory.refresh(fresh=False)
    assert memory.broken_guards() == []
    assert memory.tensor(vector(1, 2, "uint8")).tolist() == [3, 4]


def test_an_argument_smaller_than_the_plan_says_is_refused():
    with pytest.raises(ValueError, match="storage 0 has no room for"):
        PlanProgram(plan([GIVEN]), [], [storage([1, 2, 3])], "cpu")
    with pytest.raises(ValueError, match="wants storage 0 of 0"):
        PlanProgram(plan([GIVEN]), [], [], "cpu")


def test_buffers_of_no_bytes_are_buffers():
    constant = {"role": "constant", "bytes": 0, "data": ""}
    program = PlanProgram(plan([{"role": "made", "bytes": 0}, constant]), [], [], "cpu")
    assert program.enqueue() == []
    assert program.broken_guards() == []


def test_an_operation_that_is_on_no_list_is_refused():
    square = View(buffer=0, dtype="float32", offset=0, size=(2, 2), stride=(2, 1))
    product = Operation(name="aten.mm.default", arguments=[square, square], targets=[square])
    with pytest.raises(ValueError, match=r"may not hold the operation aten\.mm"):
        PlanProgram(plan([MADE], [product]), [], [], "cpu")

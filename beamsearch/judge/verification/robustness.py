"""What a kernel does beyond one right call at its own shapes: again, elsewhere, otherwise laid out.

Only what makes a result wrong on the problem's own inputs rejects; the rest is told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, get_args

from beamsearch.errors import ProblemError
from beamsearch.judge.arguments import Layout, meta_arguments
from beamsearch.judge.callee import Callee
from beamsearch.judge.rejection import Log, Rejected
from beamsearch.judge.verification.input_set import InputSet
from beamsearch.judge.verification.inputs import InputSets
from beamsearch.judge.verification.stages import bind, call_once, run_sets
from beamsearch.judge.verification.tolerance import compare
from beamsearch.records.verdict import Outcome, Stage

if TYPE_CHECKING:
    import torch

RUNS = 3
"""Calls on the same inputs."""

Opener = Callable[[Mapping[str, Any]], AbstractContextManager[Callee]]
"""Has the kernel ready for a call with such arguments, as `meta_arguments` gives them."""


def check_determinism(
    process: Callee, sets: InputSets, inputs: InputSet, log: Log, timeout_s: float
) -> None:
    """The same inputs three times. Raises Rejected where a run is wrong or far from the first.

    Results that differ in bits are told and not refused: sums gathered with atomic additions, as in
    a split-K kernel, come in another order each time and are as right as any other. What an order
    can change is rounding, far below the tolerance. A data race loses whole terms: some run is then
    outside the tolerance of the oracle, or two runs are outside the tolerance of each other.
    """
    stage, name = Stage.DETERMINISM, f"determinism {inputs.label}"
    with sets.handout(inputs) as handout:
        bind(process, name, handout, timeout_s)
        call_once(process, sets, inputs, handout, stage, timeout_s, name)
        first = [result.clone() for result in inputs.results(handout)]
        changing = 0
        for run in range(2, RUNS + 1):
            call_once(process, sets, inputs, handout, stage, timeout_s, name)
            for result, before, expected in zip(
                inputs.results(handout), first, inputs.returned, strict=True
            ):
                changed = int((as_bits(result) != as_bits(before)).sum())
                if not changed:
                    continue
                changing = max(changing, changed)
                difference = compare(result, before.to(expected.oracle.dtype), expected.scale)
                if not difference.passed:
                    reason = (
                        f"call {run} on the same inputs gives another result than the first: "
                        f"{difference.explain(result, before)}; a data race, or state that is "
                        "carried from call to call?"
                    )
                    raise Rejected(Outcome.WRONG, stage, reason)
    if changing:
        message = f"{changing} elements differ in their last bits between {RUNS} runs"
        log.reported(stage, "bitwise equal", False, message)
    else:
        log.passed(stage, "bitwise equal", f"{RUNS} runs")


def check_two_alive(
    process: Callee,
    sets: InputSets,
    drawn: Sequence[InputSet],
    log: Log,
    timeout_s: float,
) -> None:
    """A first result, looked at after a second call while both are alive. Raises Rejected where the
    second call changed it, as a kernel does that returns memory it keeps."""
    first, second = drawn[0], drawn[-1]
    name = "two results alive"
    with sets.handout(first) as handout, sets.handout(second) as other:
        bind(process, name, handout, timeout_s)
        bind(process, f"{name}, second", other, timeout_s)
        try:
            call_once(
                process, sets, first, handout, Stage.SMOKE, timeout_s, name, f"{name}, second"
            )
        except Rejected as rejection:
            if rejection.outcome is not Outcome.WRONG:
                raise
            reason = f"a result is changed by the next call: {rejection.reason}; return new memory"
            raise Rejected(Outcome.WRONG, Stage.SMOKE, reason) from rejection
    log.passed(Stage.SMOKE, name, "the second call leaves the first result as it is")


def check_not_a_number(
    process: Callee, sets: InputSets, log: Log, timeout_s: float, *, strict: bool
) -> None:
    """Whether what is not a number comes through as in the reference: told, and where it is asked
    for strictly, refused where it does not. Raises Rejected."""
    name = "not-a-number"
    inputs = sets.with_not_a_number()
    if inputs is None:
        log.not_checked.append("not-a-number: the reference takes no such inputs")
        return
    try:
        run_sets(process, sets, [inputs], Stage.SMOKE, Log(), timeout_s)
    except Rejected as rejection:
        if strict or not (rejection.raised or rejection.outcome is Outcome.WRONG):
            raise  # else its process is as good as before
        log.reported(Stage.SMOKE, name, False, f"not as in the reference: {rejection.reason}")
    else:
        log.reported(Stage.SMOKE, name, True, "as in the reference")


def as_bits(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor as whole numbers, in which not-a-number equals itself."""
    import torch

    by_size = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.view(by_size[tensor.element_size()])


def tell_layouts(opened: Opener, sets: InputSets, log: Log, timeout_s: float) -> None:
    """The kernel on inputs that are not contiguous, or not aligned: told, never rejected."""
    try:
        inputs = sets.draw(1)[0]
    except ProblemError as error:
        log.not_checked.append(f"other layouts: {error}")
        return
    label = {"strided": "inputs that are not contiguous", "misaligned": "misaligned inputs"}
    for layout in get_args(Layout):
        try:
            with (
                opened(meta_arguments(sets.problem, layout)) as callee,
                sets.handout(inputs, layout) as handout,
            ):
                name = f"{layout} {inputs.label}"
                bind(callee, name, handout, timeout_s)
                call_once(callee, sets, inputs, handout, Stage.LAYOUT, timeout_s, name)
            log.reported(Stage.LAYOUT, label[layout], True, "right")
        except Rejected as rejection:
            log.reported(Stage.LAYOUT, label[layout], False, rejection.reason)

"""What a kernel does beyond one right call at its own shapes: again, and otherwise laid out. Only
what makes a result wrong on the problem's own inputs rejects; the rest is reported."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Any

import torch

from beamsearch.errors import ProblemError, ShortOfMemory
from beamsearch.judge.arguments import Layout, meta_arguments
from beamsearch.judge.capture.forms import Form
from beamsearch.judge.rejection import GPU_CALL_S, INTERPRET_S, Log, Rejected
from beamsearch.judge.verification.inputs import InputSet, InputSets
from beamsearch.judge.verification.stages import Callee, bind, call_once, run_sets
from beamsearch.judge.verification.tolerance import compare
from beamsearch.problem.input_values import NOT_A_NUMBER
from beamsearch.problem.problem import Problem
from beamsearch.problem.shrink import shrink
from beamsearch.records.verdict import Outcome, Stage

RUNS = 3
"""Calls on the same inputs."""
LAYOUTS: dict[Layout, str] = {
    "strided": "inputs that are not contiguous",
    "misaligned": "misaligned inputs",
}


def check_determinism(process: Callee, inputs: InputSet, log: Log) -> None:
    """The same inputs three times. Raises Rejected where a run is wrong or far from the first.

    Results that differ in bits are reported: sums gathered with atomic additions, as in a split-K
    kernel, come in another order each time and are as right as any other. What an order can change
    is rounding, far below the tolerance. A data race loses whole terms: some run is then outside
    the tolerance of the oracle, or two runs are outside the tolerance of each other.
    """
    stage, changing = Stage.DETERMINISM, 0
    with inputs.handout() as handout:
        bind(process, handout, GPU_CALL_S)
        call_once(process, handout, stage, GPU_CALL_S)
        first = [result.clone() for result in handout.returned()]
        for run in range(2, RUNS + 1):
            call_once(process, handout, stage, GPU_CALL_S)
            results = handout.returned()
            for result, before, expected in zip(results, first, inputs.returned, strict=True):
                # Among whole numbers not-a-number equals itself.
                bits = getattr(torch, f"int{8 * result.element_size()}")
                changed = int((result.view(bits) != before.view(bits)).sum())
                changing = max(changing, changed)
                if not changed:
                    continue
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


def check_two_alive(process: Callee, drawn: Sequence[InputSet], log: Log) -> None:
    """A first result, looked at after a second call while both are alive. Raises Rejected where the
    second call changed it, as a kernel does that returns memory it keeps."""
    with drawn[0].handout() as handout, drawn[-1].handout() as other:
        bind(process, handout, INTERPRET_S)
        bind(process, other, INTERPRET_S, "second")
        try:
            call_once(process, handout, Stage.SMOKE, INTERPRET_S, then="second")
        except Rejected as rejection:
            if rejection.outcome is not Outcome.WRONG:
                raise
            reason = f"a result is changed by the next call: {rejection.reason}; return new memory"
            raise Rejected(Outcome.WRONG, Stage.SMOKE, reason) from rejection
    message = "the second call leaves the first result as it is"
    log.passed(Stage.SMOKE, "two results alive", message)


def check_not_a_number(
    process: Callee, sets: InputSets, log: Log, timeout_s: float, *, strict: bool
) -> None:
    """Whether what is not a number comes through as in the reference: reported; where it does not
    and `strict` is asked for, refused. Raises Rejected."""
    try:
        drawn = sets.draw(1, [NOT_A_NUMBER])
    except ShortOfMemory:
        raise
    except ProblemError:
        log.not_checked.append("not-a-number: the reference takes no such inputs")
        return
    passed, message = True, "as in the reference"
    try:
        run_sets(process, drawn, Stage.SMOKE, Log(), timeout_s)
    except Rejected as rejection:
        if strict or not (rejection.raised or rejection.outcome is Outcome.WRONG):
            raise  # else its process is as good as before
        passed, message = False, f"not as in the reference: {rejection.reason}"
    log.reported(Stage.SMOKE, "not-a-number", passed, message)


def laid_out(
    problem: Problem, at: Callable[[dict[str, Any]], Form | Rejected]
) -> dict[Layout, Form | Rejected]:
    """A kernel for small inputs of other layouts, as `at` captures it for arguments; of none where
    the problem is not shrunk."""
    with suppress(ProblemError):
        small = shrink(problem)
        return {layout: at(meta_arguments(small, layout)) for layout in LAYOUTS}
    return {}


def tell_layouts(
    opened: Callable[[Layout], AbstractContextManager[Callee]],
    sets: InputSets,
    log: Log,
    timeout_s: float,
) -> None:
    """The kernel on inputs that are not contiguous, or not aligned: reported, never rejected.
    `opened` has it ready for a call with inputs of that layout."""
    try:
        inputs = sets.draw(1)[0]
    except ProblemError as error:
        log.not_checked.append(f"other layouts: {error}")
        return
    for layout, label in LAYOUTS.items():
        passed, message = True, "right"
        try:
            with opened(layout) as callee, inputs.handout(layout) as handout:
                bind(callee, handout, timeout_s)
                call_once(callee, handout, Stage.LAYOUT, timeout_s)
        except Rejected as rejection:
            passed, message = False, rejection.reason
        log.reported(Stage.LAYOUT, label, passed, message)

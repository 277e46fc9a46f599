"""A candidate called on input sets, and what comes back compared with the oracle. Each stage raises
`Rejected` where the candidate fails it."""

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch

from beamsearch.errors import ProblemError
from beamsearch.judge.arguments import poison_all
from beamsearch.judge.capture.forms import Form
from beamsearch.judge.rejection import Log, Rejected, guarded, names_in
from beamsearch.judge.runner.client import CALL, Replay
from beamsearch.judge.sandbox.processes import CandidateProcess
from beamsearch.judge.verification.inputs import Handout, InputSet
from beamsearch.judge.verification.negative_controls import CannotTell, Sway
from beamsearch.judge.verification.oracle import Expected
from beamsearch.judge.verification.tolerance import Difference, lower_precision
from beamsearch.problem.input_values import NOT_A_NUMBER
from beamsearch.records.verdict import Outcome, Stage

Callee = CandidateProcess | Replay
"""What calls a candidate: its process in the interpreter, or the runner with its plan."""
Loader = Callable[[str, Form], AbstractContextManager[Replay]]
"""Has a form in the runner, under a name."""
FIRST_OWN = "own #1"
"""The first set of the problem's own inputs."""
SWAY_ELEMENTS = 1 << 24
"""Outputs of at most so many elements store how far they move: two bytes each."""
CHANGED_INPUTS = "the kernel changed its inputs or parameters; write to a new tensor"


def bind(process: Callee, handout: Handout, timeout_s: float, name: str = CALL) -> None:
    """Bind an input set, in place of the one that was bound under the name."""
    guarded(Stage.LOAD, "binding", process.ask, "bind", timeout_s, name=name, **handout.given)


def run_sets(
    process: Callee,
    chosen: Sequence[InputSet],
    stage: Stage,
    log: Log,
    timeout_s: float,
    first_s: float | None = None,
) -> None:
    """Call the candidate once on each set and compare what comes back; the first call at these
    shapes may take `first_s`, for a kernel that tunes itself there. Raises Rejected, and
    ProblemError where no set turns out to prove anything."""
    strides = ""
    for number, inputs in enumerate(chosen):
        limit_s = timeout_s if number or first_s is None else first_s
        with inputs.handout() as handout:
            bind(process, handout, limit_s)
            found = call_once(process, handout, stage, limit_s)
            strides = strides or found.strides
            if inputs.proves:
                tell_right(log, stage, inputs.label, handout, found)
    if strides:
        log.reported(stage, "strides", False, strides)
    if chosen and not any(inputs.proves for inputs in chosen):
        sets = chosen[0].sets
        raise ProblemError(
            f"{sets.problem.name} cannot tell right from wrong: {'; '.join(sets.dropped.values())}"
        )


class Compared(NamedTuple):
    """What is to be said of results that are right."""

    excused: str
    """How many elements only rounding explains; empty where there are none."""
    strides: str
    """How the strides differ from the reference's; empty where they do not."""
    rms_error: float
    """Of the outputs the largest, as a share of the output's spread."""


def tell_right(log: Log, stage: Stage, name: str, handout: Handout, found: Compared) -> None:
    """Note that results on a set are right; of the first of the problem's own, by how much."""
    log.passed(stage, name, f"right on {shapes(handout)}{found.excused}")
    own = handout.of
    if own.label == FIRST_OWN and own.proves and stage in (Stage.SMOKE, Stage.TRUE_SHAPES):
        log.rms_error = found.rms_error


def call_once(
    process: Callee, handout: Handout, stage: Stage, timeout_s: float, **options: Any
) -> Compared:
    """Call what is bound, and compare as `check_result`. Raises Rejected."""
    answer = ask_once(process, handout, stage, timeout_s, **options)
    return check_result(process, answer, handout, stage)


def ask_once(
    process: Callee, handout: Handout, stage: Stage, timeout_s: float, **options: Any
) -> dict[str, Any]:
    """Call what is bound, and what its process answers. Options as in `Harness.do_call`. Raises
    Rejected."""
    poison_all(handout.results)
    options |= {"name": CALL, **handout.wanted}
    return guarded(stage, place(handout), process.ask, "call", timeout_s, **options)


def check_result(
    process: Callee,
    answer: dict[str, Any],
    handout: Handout,
    stage: Stage,
    where: str = "",
) -> Compared:
    """Compare what a call handed over with the oracle. Raises Rejected."""
    reported, wanted = answer.get("results"), handout.of.returned
    reported = reported if isinstance(reported, list) else []
    excused, rms_error = 0, 0.0
    which = [_which(handout, index) for index in range(len(wanted))]
    reason = damaged(answer, handout, process.touched) or misfits(reported, wanted, which)
    if reason is None:
        excused, rms_error, reason = compare_values(handout, which)
    if reason is not None:
        raise Rejected(Outcome.WRONG, stage, f"{where or place(handout)}: {reason}")
    strides = [other_strides(told, one) for told, one in zip(reported, wanted, strict=True)]
    return Compared(
        f"; {excused} elements off by more, by no more than rounding of the inputs moves them"
        if excused
        else "",
        "; ".join(text for text in strides if text),
        rms_error,
    )


def damaged(answer: dict[str, Any], handout: Handout, touched: Collection[int]) -> str | None:
    """What was written that should not have been, or should have been and is not, or none. Inputs
    are put back."""
    if guards := names_in(answer.get("guards")):
        return f"the kernel writes outside its tensors: around {', '.join(guards[:3])}"
    inputs, changed = handout.of, handout.changed()
    states = {name: handout.state(name) for name in inputs.updated}
    try:
        if changed.difference(number for number, _ in states.values()):
            return CHANGED_INPUTS
        for name, (number, value) in states.items():
            if number not in changed.union(touched):
                continue  # it is nothing that the kernel has to do with
            expected = inputs.updated[name]
            difference = expected.difference(value)
            if not difference.passed:
                told = difference.explain(value, expected.oracle)
                return f"{name}, which the reference updates: {told}"
    finally:
        if changed:
            inputs.repair()
    return None


def _which(handout: Handout, index: int) -> str:
    """How a reason begins that is of one output of several: gradients come behind the outputs."""
    if len(handout.of.returned) == 1:
        return ""
    what = "output or gradient" if handout.of.sets.problem.backward else "output"
    return f"{what} {index}: "


def misfits(reported: list[Any], wanted: Sequence[Expected], which: Sequence[str]) -> str | None:
    """What of the outputs is not as expected, their values aside, or none."""
    if len(reported) != len(wanted):
        kinds = ", ".join(str(told.get("type")) for told in reported if isinstance(told, dict))
        return f"returned {len(reported)} values ({kinds[:200]}) where {len(wanted)} are expected"
    for item, expected, first in zip(reported, wanted, which, strict=True):
        told = item if isinstance(item, dict) else {}
        shape, dtype = list(expected.oracle.shape), str(expected.dtype).removeprefix("torch.")
        device, own = expected.oracle.device.type, str(told.get("device")).partition(":")[0]
        kind, aliases = told.get("type"), told.get("aliases_input") and not expected.may_alias
        faults = {
            f"returned a {kind} where a tensor is expected": kind != "tensor",
            f"output has shape {told.get('shape')} instead of {shape}": told.get("shape") != shape,
            f"output is {told.get('dtype')} instead of {dtype}": told.get("dtype") != dtype,
            f"output is on {own}, the inputs are on {device}": own != device,
            "the output is memory of an input; return a tensor of its own": aliases,
        }
        if fault := next((reason for reason, found in faults.items() if found), None):
            return first + fault
    return None


def difference_of(inputs: InputSet, index: int, result: torch.Tensor) -> Difference:
    """An output against its oracle. What is outside the tolerance is looked at again, by how far
    rounding moves the outputs of these very inputs; not where they are whole numbers, which are
    exact and whose ties a rounding would break.

    Raises CannotTell where the set turns out to prove nothing, which drops it.
    """
    plain = inputs.expected[index].difference(result)
    if plain.passed or inputs.distribution in ("ties", NOT_A_NUMBER):
        return plain
    sets = inputs.sets
    made = partial(sets.instance, distribution=inputs.distribution)
    sway = inputs.sway or Sway(made, inputs.seed, sets.wide, sets.problem.dtype)
    if sum(item.oracle.numel() for item in inputs.expected) <= SWAY_ELEMENTS:
        inputs.sway = sway
    try:
        return sway.reconsider(plain, result, index, inputs.expected)
    except torch.OutOfMemoryError:  # the tolerance alone decides
        return replace(plain, unsure=True)
    except CannotTell as reason:
        sets.dropped[inputs.label] = f"{inputs.label}: where rounding is allowed for, {reason}"
        raise
    finally:
        sets.release()


def compare_values(handout: Handout, which: Sequence[str]) -> tuple[int, float, str | None]:
    """How many elements only rounding explains, none where the set turns out to prove nothing; the
    largest rms error; and what is wrong, or none."""
    inputs, excused, rms_error = handout.of, 0, 0.0
    for index, result in enumerate(handout.returned()):
        expected = inputs.expected[index]
        try:
            difference = difference_of(inputs, index, result)
        except CannotTell:
            return 0, 0.0, None
        excused += difference.excused
        rms_error = max(rms_error, difference.relative_rms)
        if not difference.passed:
            return 0, rms_error, which[index] + difference.explain(result, expected.oracle)
        if inputs.distribution in ("own", "normal"):
            share = difference.relative_rms
            if reason := lower_precision(result, share, expected.oracle, expected.scale):
                return 0, rms_error, which[index] + reason
    return excused, rms_error, None


def other_strides(told: dict[str, Any], expected: Expected) -> str:
    """How an output's strides differ from the reference's, or nothing. Reported, never rejected."""
    stride, shape = told.get("stride"), expected.oracle.shape
    if not isinstance(stride, list) or len(stride) != len(expected.stride):
        return ""
    pairs = zip(stride, expected.stride, shape, strict=True)
    if all(got == want or size == 1 for got, want, size in pairs):
        return ""
    return f"an output has strides {tuple(stride)}, the reference's has {expected.stride}"


def place(handout: Handout) -> str:
    """The input set as a reason names it."""
    return f"on {handout.of.label} inputs of {shapes(handout)}"


def shapes(handout: Handout) -> str:
    """The inputs' shapes as a person reads them."""
    arguments = handout.given["arguments"]
    named = [(name, arguments["values"][name]) for name in arguments["forward"]]
    tensors = [(name, v["tensor"]) for name, v in named if isinstance(v, dict) and "tensor" in v]
    return ", ".join(f"{name} {tuple(tensor['size'])}" for name, tensor in tensors)

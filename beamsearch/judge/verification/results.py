"""What a call handed over, compared with the oracle."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from beamsearch.judge.rejection import Rejected, names_in
from beamsearch.judge.verification.handout import Handout
from beamsearch.judge.verification.input_set import InputSet
from beamsearch.judge.verification.inputs import InputSets
from beamsearch.judge.verification.lower_precision import lower_precision
from beamsearch.judge.verification.negative_controls import CannotTell
from beamsearch.judge.verification.oracle import Expected
from beamsearch.judge.verification.tolerance import compare
from beamsearch.records.verdict import Outcome, Stage

CHANGED_INPUTS = "the kernel changed its inputs or parameters; write to a new tensor"


@dataclass(frozen=True)
class Compared:
    """What is told of a right result."""

    excused: str = ""
    """Behind "right": how much of it only rounding explains."""
    strides: str = ""
    """How its strides differ from the reference's."""


def place(inputs: InputSet, handout: Handout) -> str:
    """The input set as a reason tells it."""
    return f"on {inputs.label} inputs of {shapes(handout)}"


def check_result(
    answer: dict[str, Any],
    inputs: InputSet,
    sets: InputSets,
    handout: Handout,
    stage: Stage,
    where: str,
    touched: Collection[int],
) -> Compared:
    """Compare what a call handed over with the oracle. Raises Rejected."""

    def wrong(reason: str) -> Rejected:
        return Rejected(Outcome.WRONG, stage, f"{where}: {reason}")

    if damage := damaged(answer, inputs, sets, handout, touched):
        raise wrong(damage)
    reported = answer.get("results")
    if not isinstance(reported, list) or len(reported) != len(inputs.returned):
        reported = reported if isinstance(reported, list) else []
        kinds = ", ".join(str(told.get("type")) for told in reported if isinstance(told, dict))
        count, wanted = len(reported), len(inputs.returned)
        raise wrong(f"returned {count} values ({kinds[:200]}) where {wanted} are expected")
    for told, expected in zip(reported, inputs.returned, strict=True):
        complaint = misfit(told, expected)
        if complaint:
            raise wrong(complaint)
    excused = compare_values(inputs, sets, handout, wrong)
    strides = [
        other_strides(told, one) for told, one in zip(reported, inputs.returned, strict=True)
    ]
    return Compared(
        excused=f"; rounding of the inputs explains {excused} elements" if excused else "",
        strides="; ".join(text for text in strides if text),
    )


def damaged(
    answer: dict[str, Any],
    inputs: InputSet,
    sets: InputSets,
    handout: Handout,
    touched: Collection[int],
) -> str | None:
    """What was written that should not have been, or should have been and is not, or none. Inputs
    are put back."""
    if guards := names_in(answer.get("guards")):
        return f"the kernel writes outside its tensors: around {', '.join(guards[:3])}"
    changed = handout.changed()
    states = {name: handout.state(name) for name in inputs.updated}
    try:
        if changed.difference(number for number, _ in states.values()):
            return CHANGED_INPUTS
        for name, (number, value) in states.items():
            if number not in changed.union(touched):
                continue  # it is nothing that the kernel has to do with
            expected = inputs.updated[name]
            difference = compare(value, expected.oracle, expected.scale)
            if not difference.passed:
                told = difference.explain(value, expected.oracle)
                return f"{name}, which the reference updates: {told}"
    finally:
        if changed:
            sets.repair(inputs)
    return None


def compare_values(
    inputs: InputSet, sets: InputSets, handout: Handout, wrong: Callable[[str], Rejected]
) -> int:
    """How many elements only rounding explains; none where the set turns out to prove nothing.
    Raises what `wrong` makes of a reason."""
    excused = 0
    for index, result in enumerate(inputs.results(handout)):
        expected = inputs.expected[index]
        try:
            difference = sets.compare(inputs, index, result)
        except CannotTell:
            return 0
        excused += difference.excused
        if not difference.passed:
            raise wrong(difference.explain(result, expected.oracle))
        if inputs.distribution in ("own", "normal"):
            share = difference.relative_rms
            reason = lower_precision(result, share, expected.oracle, expected.scale)
            if reason:
                raise wrong(reason)
    return excused


def other_strides(told: dict[str, Any], expected: Expected) -> str:
    """How an output's strides differ from the reference's, or nothing. Told, never rejected."""
    stride, shape = told.get("stride"), expected.oracle.shape
    if not isinstance(stride, list) or len(stride) != len(expected.stride):
        return ""
    pairs = zip(stride, expected.stride, shape, strict=True)
    if all(got == want or size == 1 for got, want, size in pairs):
        return ""
    return f"an output has strides {tuple(stride)}, the reference's has {expected.stride}"


def misfit(told: Any, expected: Expected) -> str | None:
    """What of an output is not as expected, its values aside, or none."""
    if not isinstance(told, dict) or told.get("type") != "tensor":
        told = told if isinstance(told, dict) else {}
        return f"returned a {told.get('type')} where a tensor is expected"
    shape, dtype = list(expected.oracle.shape), str(expected.dtype).removeprefix("torch.")
    if told.get("shape") != shape:
        return f"output has shape {told.get('shape')} instead of {shape}"
    if told.get("dtype") != dtype:
        return f"output is {told.get('dtype')} instead of {dtype}"
    device = str(told.get("device")).partition(":")[0]
    if device != expected.oracle.device.type:
        return f"output is on {device}, the inputs are on {expected.oracle.device.type}"
    if told.get("aliases_input") and not expected.may_alias:
        return "the output is memory of an input; return a tensor of its own"
    return None


def shapes(handout: Handout) -> str:
    """The inputs' shapes as a person reads them."""
    values = handout.arguments["values"]
    named = {name: values[name] for name in handout.arguments["forward"]}
    return ", ".join(
        f"{name} {tuple(value['tensor']['size'])}"
        for name, value in named.items()
        if isinstance(value, dict) and "tensor" in value
    )

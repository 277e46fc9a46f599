"""The stages of a verdict. Each raises `Rejected` where a candidate fails it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from beamsearch.errors import ProblemError
from beamsearch.judge.callee import Callee
from beamsearch.judge.rejection import Log, guarded
from beamsearch.judge.verification.handout import Handout
from beamsearch.judge.verification.input_set import InputSet
from beamsearch.judge.verification.inputs import InputSets
from beamsearch.judge.verification.results import Compared, check_result, place, shapes
from beamsearch.records.verdict import Stage


def bind(process: Callee, name: str, handout: Handout, timeout_s: float) -> None:
    """Bind an input set under its name."""
    guarded(
        Stage.LOAD,
        "binding",
        lambda: process.ask(
            "bind", timeout_s, name=name, arguments=handout.arguments, storages=handout.storages
        ),
    )


def run_sets(
    process: Callee,
    sets: InputSets,
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
        with sets.handout(inputs) as handout:
            bind(process, f"{stage.value} {inputs.label}", handout, limit_s)
            compared = call_once(process, sets, inputs, handout, stage, limit_s)
            strides = strides or compared.strides
            if sets.proves(inputs):
                log.passed(stage, inputs.label, f"right on {shapes(handout)}{compared.excused}")
    if strides:
        log.reported(stage, "strides", False, strides)
    if chosen and not any(sets.proves(inputs) for inputs in chosen):
        raise ProblemError(
            f"{sets.problem.name} cannot tell right from wrong: {'; '.join(sets.dropped)}"
        )


def call_once(
    process: Callee,
    sets: InputSets,
    inputs: InputSet,
    handout: Handout,
    stage: Stage,
    timeout_s: float,
    name: str | None = None,
    then: str | None = None,
) -> Compared:
    """Call what is bound under the name (the set's at this stage), and compare. `then` is called
    too before the result is looked at. Raises Rejected."""
    where = place(inputs, handout)
    answer = ask_once(process, inputs, handout, stage, timeout_s, name, then=then)
    return check_result(answer, inputs, sets, handout, stage, where, process.touched)


def ask_once(
    process: Callee,
    inputs: InputSet,
    handout: Handout,
    stage: Stage,
    timeout_s: float,
    name: str | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Call what is bound under the name, and what its process answers. Raises Rejected."""
    handout.poison()
    return guarded(
        stage,
        place(inputs, handout),
        lambda: process.ask(
            "call",
            timeout_s,
            name=name or f"{stage.value} {inputs.label}",
            outputs=handout.outputs,
            storages=handout.output_storages,
            **options,
        ),
    )

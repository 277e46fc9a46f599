"""The kernel's own Python, called on the GPU once its plan was judged: what users will run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from beamsearch.judge.callee import load
from beamsearch.judge.capture.ahead import Form
from beamsearch.judge.rejection import FIRST_CALL_S, GPU_CALL_S, Log, guarded, number_in
from beamsearch.judge.sandbox.processes import ForkServers
from beamsearch.judge.verification.input_set import InputSet
from beamsearch.judge.verification.inputs import InputSets
from beamsearch.judge.verification.stages import run_sets
from beamsearch.records.verdict import Stage

CALLS = 20
"""Calls by whose median the host's time is told."""


def call_python(
    servers: ForkServers,
    path: str,
    key: str,
    form: Form,
    target: tuple[int, Mapping[str, Any]],
    on: tuple[InputSets, InputSet],
    log: Log,
) -> float:
    """Microseconds that a call of the source takes on the host; needs the lane.

    Its results on one input set are compared first, as the plan's were. Nothing is ranked by what
    this process tells: the host's time is the kernel's word. `target`: the GPU's index and facts.
    Raises Rejected.
    """
    (device, gpu), (sets, inputs), stage = target, on, Stage.PYTHON
    told = Log()
    with servers.fork("calling", key=key) as process:
        process.touched = form.plan.touched
        try:
            guarded(stage, "the GPU", lambda: process.ask("open", FIRST_CALL_S, device=device))
            load(process, path, gpu)
            run_sets(process, sets, [inputs], stage, told, GPU_CALL_S, FIRST_CALL_S)
            name = f"{stage.value} {inputs.label}"
            answer = guarded(
                stage,
                "timing its host code",
                lambda: process.ask("host_time", GPU_CALL_S, name=name, count=CALLS),
            )
        finally:
            process.end()
            log.output.append(process.output)
    log.checks += told.checks
    return number_in(answer.get("host_us"))


def tell_host_time(host_us: float, time_ms: float, log: Log) -> None:
    """What a call costs in Python, beside the time on the GPU, and whether it is the longer."""
    message = f"{host_us:.0f} us of Python a call, {1e3 * time_ms:.0f} us on the GPU"
    longer = host_us > 1e3 * time_ms
    if longer:
        message += ": a plain call is bound by its host code; launch it from a CUDA graph"
    log.reported(Stage.PYTHON, "host time", not longer, message)

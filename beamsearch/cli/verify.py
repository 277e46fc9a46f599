"""`verify PROBLEM KERNEL`: is this kernel correct?"""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from beamsearch.cli.options import (
    BackwardOption,
    DeviceOption,
    DtypeOption,
    JsonOption,
    KernelBenchOption,
    PrecisionOption,
    ProblemArgument,
    ScaleOption,
    SeedOption,
    StrictNanOption,
    TargetOption,
    asked_problem,
)

if TYPE_CHECKING:
    from beamsearch.records.job import Judgement
    from beamsearch.records.verdict import Check

KernelArgument = Annotated[Path, typer.Argument(metavar="KERNEL", help="A kernel file.")]


def verify(
    problem: ProblemArgument,
    kernel: KernelArgument,
    kernelbench: KernelBenchOption = None,
    scale: ScaleOption = None,
    json: JsonOption = False,
    sanitize: Annotated[
        bool, typer.Option(help="Also under compute-sanitizer, on a GPU: half a minute more.")
    ] = False,
    dtype: DtypeOption = None,
    precision: PrecisionOption = None,
    backward: BackwardOption = None,
    target: TargetOption = None,
    device: DeviceOption = None,
    seed: SeedOption = None,
    strict_nan: StrictNanOption = None,
) -> None:
    """Judge a kernel: every stage and check. Exit code 0 only where the verdict is correct."""
    from beamsearch.gpu.environment import check_platform
    from beamsearch.gpu.machine import find_machine

    check_platform()
    machine = find_machine(device, target)

    from beamsearch.executor.opened import lane
    from beamsearch.judge.sandbox.isolation import missing_in_words
    from beamsearch.records.job import JudgeJob, Subject

    found = asked_problem(problem, kernelbench, scale, dtype, precision, backward, json=json)
    source = read_source(kernel)
    subject = Subject(name=kernel.stem, source=source)
    with lane(found, machine, seed, strict_nan=bool(strict_nan)) as (executor, _):
        judgement = executor.run(JudgeJob(subject=subject, thorough=True, sanitize=sanitize))
        where, isolation = executor.gpu, missing_in_words(executor.missing_isolation())
    answer = as_json(judgement) | {"problem": found.name, "kernel": str(kernel), "gpu": where}
    answer |= {
        "isolation": isolation,
        "precision": found.precision,
        "backward": found.backward,
        "scaled": found.scaled,
    }
    typer.echo(json_module.dumps(answer) if json else f"{isolation}\n{told(judgement)}")
    if not judgement.verdict.correct:
        raise typer.Exit(1)


def read_source(path: Path) -> str:
    """A kernel file's text, whatever it holds. Raises KernelError where it cannot be read."""
    from beamsearch.errors import KernelError

    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise KernelError(f"cannot read the kernel file {path}: {error}") from error


def as_json(judgement: Judgement) -> dict[str, Any]:
    """The verdict, flat: `verdict` is `correct` or names what failed."""
    dumped = judgement.model_dump(mode="json")
    verdict = dumped["verdict"]
    return {
        "verdict": verdict["outcome"],
        "stage": verdict["stage"],
        "reason": verdict["reason"],
        "reach": verdict["reach"],
        "checks": verdict["checks"],
        "not_checked": verdict["not_checked"],
        "output": verdict["output"],
        "measurement": dumped["measurement"],
    }


def mark(check: Check) -> str:
    """How a check went, in four letters; `note` for what decides nothing."""
    if check.passed:
        return "ok  "
    return "note" if check.reported else "FAIL"


def told(judgement: Judgement) -> str:
    """Every check, what was not checked, and the verdict last."""
    from beamsearch.records.verdict import Reach, Stage

    at_shapes = {
        Reach.GENERAL: ", also at other shapes",
        Reach.SPECIALISED: ", for the problem's own shapes alone",
        None: "",
    }
    verdict, lines = judgement.verdict, []
    for stage in Stage:
        checks = [check for check in verdict.checks if check.stage is stage]
        for check in checks:
            message = f": {check.message}" if check.message else ""
            lines.append(f"{mark(check)} {stage:<12} {check.name}{message}")
        if not checks:
            lines.append(f"  -  {stage:<12} not checked")
    for text in verdict.not_checked:
        lines.append(f"  -  not checked: {text}")
    if verdict.output and not verdict.correct:
        lines.append("the end of what its processes printed:")
        lines += [f"    {line}" for line in verdict.output.rstrip().splitlines()]
    if judgement.measurement is not None:
        lines.append(f"time: {judgement.measurement} ({judgement.measurement.gpu})")
    at = f" at {verdict.stage}: {verdict.reason}" if verdict.stage else ""
    if not at and verdict.reason:
        at = f": {verdict.reason}"
    lines.append(f"verdict: {verdict.outcome}{at_shapes[verdict.reach]}{at}")
    return "\n".join(lines)

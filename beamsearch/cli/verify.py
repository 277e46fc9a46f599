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
    from beamsearch.api.verify import verify as judge

    found = asked_problem(problem, kernelbench, scale, dtype, precision, backward, json=json)
    answer = judge(
        found,
        kernel,
        sanitize=sanitize,
        target=target,
        device=device,
        seed=seed,
        strict_nan=bool(strict_nan),
    )
    if json:
        of = answer.model_dump(include={"problem", "gpu", "isolation", "precision", "backward"})
        of |= {"kernel": str(kernel), "scaled": answer.scaled}
        typer.echo(json_module.dumps(as_json(answer) | of))
    else:
        typer.echo(f"{answer.isolation}\n{answer}")
    if not answer.correct:
        raise typer.Exit(1)


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

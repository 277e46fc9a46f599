"""`time PROBLEM KERNEL…`: kernels beside the input kernel and PyTorch, interleaved in one visit."""

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
    StrictNanOption,
    asked_problem,
)

if TYPE_CHECKING:
    from beamsearch.api.time import Timing

KernelsArgument = Annotated[
    list[Path], typer.Argument(metavar="KERNEL...", help="Kernel files, the first the subject.")
]


def time(
    problem: ProblemArgument,
    kernels: KernelsArgument,
    kernelbench: KernelBenchOption = None,
    scale: ScaleOption = None,
    json: JsonOption = False,
    dtype: DtypeOption = None,
    precision: PrecisionOption = None,
    backward: BackwardOption = None,
    device: DeviceOption = None,
    strict_nan: StrictNanOption = None,
) -> None:
    """Time kernels side by side with the input kernel, eager, torch.compile and max-autotune.

    Each kernel is verified first; then all take turns, and every ratio to the first kernel comes
    from turns taken together, with its 95% confidence interval. Exit code 1 where a kernel is not
    correct. Needs an NVIDIA GPU.
    """
    from beamsearch.api.time import time as measure

    found = asked_problem(problem, kernelbench, scale, dtype, precision, backward, json=json)
    answer = measure(found, kernels, device=device, strict_nan=bool(strict_nan))
    typer.echo(json_module.dumps(as_json(answer)) if json else str(answer))
    if any(name in answer.failed for name in answer.kernels):
        raise typer.Exit(1)


def as_json(answer: Timing) -> dict[str, Any]:
    """Every number of the table."""
    from dataclasses import asdict

    return {
        "problem": answer.problem,
        "gpu": answer.gpu,
        "subject": answer.subject,
        "floor_ms": answer.floor.time_ms,
        "floor": answer.floor.model_dump(mode="json"),
        "times": {
            name: taken.model_dump(mode="json") for name, taken in answer.measurements.items()
        },
        "turns": answer.comparison.turns,
        "over_subject": {
            name: asdict(ratio) | {"verdict": ratio.verdict}
            for name, ratio in answer.ratios.items()
        },
        "failed": answer.failed,
        "scaled": answer.scaled,
    }

"""`profile PROBLEM [KERNEL]`: what holds a kernel back, and where."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
    TargetOption,
    asked_problem,
)

if TYPE_CHECKING:
    from beamsearch.api.profile import Profiled

KeepReportOption = Annotated[
    bool, typer.Option("--keep-report", help="Keep Nsight Compute's report, for its GUI, here.")
]
MetricsOption = Annotated[
    bool, typer.Option("--metrics", help="Print every curated metric, with unit and meaning.")
]


def profile(
    problem: ProblemArgument,
    kernel: Annotated[
        Path | None,
        typer.Argument(metavar="KERNEL", help="Default: input_kernel.py of the problem."),
    ] = None,
    kernelbench: KernelBenchOption = None,
    scale: ScaleOption = None,
    json: JsonOption = False,
    keep_report: KeepReportOption = False,
    metrics: MetricsOption = False,
    dtype: DtypeOption = None,
    precision: PrecisionOption = None,
    backward: BackwardOption = None,
    target: TargetOption = None,
    device: DeviceOption = None,
    seed: SeedOption = None,
) -> None:
    """Tell what holds a kernel back.

    The floor, the traffic, findings, and the source with its counters: from Nsight Compute where
    there is a GPU, from the compiler alone where there is none. The kernel is verified first.
    """
    from beamsearch.api.kernel import own_kernel
    from beamsearch.api.profile import profile as examine
    from beamsearch.api.verify import IncorrectKernel
    from beamsearch.cli.profile_page import ProfilePage
    from beamsearch.cli.verify import as_json

    found = asked_problem(problem, kernelbench, scale, dtype, precision, backward, json=json)
    path = kernel or own_kernel(found)
    report = Path(f"{found.name}-{path.stem}.ncu-rep") if keep_report else None
    try:
        taken = examine(found, path, target=target, device=device, seed=seed, keep_report=report)
    except IncorrectKernel as error:
        wrong = error.verification
        typer.echo(json_module.dumps(as_json(wrong)) if json else str(wrong))
        raise typer.Exit(1) from error
    page = ProfilePage(path, taken, metrics)
    typer.echo(json_module.dumps(page.as_json()) if json else page.text())
    if keep_report:
        typer.echo(f"report: {kept(taken)}", err=True)


def kept(taken: Profiled) -> Path:
    """Where the report is. Raises UsageError where there is none."""
    from beamsearch.errors import UsageError

    if taken.report is None:
        why = (
            "this profile is the compiler's" if taken.profile.source == "compiler" else "none left"
        )
        raise UsageError(
            f"--keep-report: there is no Nsight Compute report, {why} "
            "(`python -m beamsearch doctor` checks ncu and its permission)"
        )
    return taken.report

"""`profile PROBLEM [KERNEL]`: what holds a kernel back, and where."""

from __future__ import annotations

import json as json_module
import shutil
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
    from beamsearch.problem.problem import Problem

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
    from beamsearch.gpu.environment import check_platform
    from beamsearch.gpu.machine import find_machine

    check_platform()
    machine = find_machine(device, target)

    from beamsearch.baselines.floor import beaten_floor, measure_floor
    from beamsearch.cli.profile_page import ProfilePage
    from beamsearch.cli.verify import as_json, read_source, told
    from beamsearch.executor.opened import lane
    from beamsearch.records.job import JudgeJob, ProfileJob, Subject
    from kernel_profiling.findings.findings import find
    from kernel_profiling.ncu.line_counters import annotate

    found = asked_problem(problem, kernelbench, scale, dtype, precision, backward, json=json)
    path = kernel_file(found, kernel)
    subject = Subject(name=path.stem, source=read_source(path))
    with lane(found, machine, seed) as (executor, scratch):
        judgement = executor.run(JudgeJob(subject=subject))
        if not judgement.verdict.correct:
            typer.echo(json_module.dumps(as_json(judgement)) if json else told(judgement))
            raise typer.Exit(1)
        taken = executor.run(ProfileJob(subject=subject, full=True))
        time = judgement.measurement
        floor = measure_floor(found, machine)
        if time is not None:
            floor = beaten_floor(found, floor, time, machine)
        findings = find(taken, floor, time.time_ms if time else None)
        listing = annotate(taken, subject.source or "")
        page = ProfilePage(found.name, path, floor, time, taken, findings, listing, metrics)
        answer = page.as_json() | {"scaled": found.scaled}
        typer.echo(json_module.dumps(answer) if json else page.text())
        if keep_report:
            kept = keep(scratch, Path(f"{found.name}-{path.stem}.ncu-rep"), taken.source)
            typer.echo(f"report: {kept}", err=True)


def kernel_file(problem: Problem, given: Path | None) -> Path:
    """The file that was named, else the problem's own kernel. Raises UsageError."""
    from beamsearch.errors import UsageError

    path = given or problem.input_kernel
    if path is None:
        raise UsageError(f"{problem.name} has no input_kernel.py; name a kernel file")
    return path


def keep(scratch: Path, wanted: Path, source: str) -> Path:
    """Copy the report that profiling left, and where to. Raises UsageError where there is none."""
    from beamsearch.errors import UsageError

    reports = sorted(scratch.rglob("*.ncu-rep"), key=lambda path: path.stat().st_mtime)
    if not reports:
        why = "this profile is the compiler's" if source == "compiler" else "none was left"
        raise UsageError(
            f"--keep-report: there is no Nsight Compute report, {why} "
            "(`python -m beamsearch doctor` checks ncu and its permission)"
        )
    try:
        shutil.copyfile(reports[-1], wanted)
    except OSError as error:
        raise UsageError(
            f"--keep-report: cannot write {wanted.resolve()}: {error.strerror}"
        ) from error
    return wanted.resolve()

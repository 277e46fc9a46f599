"""`audit PROBLEM…`: can these problems tell good kernels from bad ones?"""

from __future__ import annotations

import json as json_module
from typing import TYPE_CHECKING, Annotated

import typer

from beamsearch.cli.options import JsonOption, KernelBenchOption, ScaleOption, TargetOption

if TYPE_CHECKING:
    from beamsearch.records.audit import Audit

ProblemsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[PROBLEM]...",
        help="As in run, or a folder of problems, or a level of KernelBench, or a file with one of "
        "these a line. Default: all that come along; with --kernelbench, its levels 1 to 3.",
    ),
]


def audit(
    problems: ProblemsArgument = None,
    kernelbench: KernelBenchOption = None,
    scale: ScaleOption = None,
    target: TargetOption = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Problems at once. Default: the cores.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Say what of a problem makes a win on it mean little.

    Outputs that are tiny, the same for any seed or along an axis; inputs and weights that make no
    difference; work that algebra removes; launches alone. Without a GPU, at smaller shapes. Exit
    code 1 where a problem does not load.
    """
    from beamsearch.gpu.cores import cores
    from beamsearch.gpu.machine import find_machine
    from beamsearch.suite.audits import audits
    from beamsearch.suite.problems import files_of

    gpu = find_machine(None, target).gpu
    paths = files_of(problems or [], kernelbench)
    found = []
    for one in audits(paths, gpu, jobs or cores(), scale=scale):
        found.append(one)
        if not json:
            typer.echo(told(one))
    failed = [one for one in found if one.failed]
    if json:
        order = {str(path): number for number, path in enumerate(paths)}
        found.sort(key=lambda one: order[one.path])
        typer.echo(json_module.dumps({"problems": [one.model_dump(mode="json") for one in found]}))
    else:
        typer.echo(summary(found))
    if failed:
        raise typer.Exit(1)


def told(one: Audit) -> str:
    """A problem's line, and one for each fault."""
    if one.failed:
        return f"{one.name}\n    cannot be run: {one.failed}"
    small = "no shrunk form" if one.shrunk is None else "shrinks"
    work = f"{one.least_bytes / 1e9:.3g} GB, {one.flops / 1e9:.3g} GFLOP"
    lines = [f"{one.name}: {work}, floor {one.floor_ms:.3g} ms, {one.dtype}, {small}"]
    lines += [f"    {fault.flaw}: {fault.told}" for fault in one.faults]
    if one.not_examined:
        lines.append(f"    not run: {one.not_examined}")
    return "\n".join(lines)


def summary(found: list[Audit]) -> str:
    """How many problems have which flaw."""
    from collections import Counter

    flaws = Counter(flaw for one in found for flaw in {fault.flaw for fault in one.faults})
    shrunk = sum(one.shrunk is not None for one in found)
    failed = sum(one.failed is not None for one in found)
    flawed = sum(bool(one.faults) for one in found)
    named = ", ".join(f"{flaw} {count}" for flaw, count in flaws.most_common())
    return (
        f"{len(found)} problems: {failed} cannot be run, {shrunk} shrink, {flawed} have a flaw"
        + (f" ({named})" if named else "")
    )

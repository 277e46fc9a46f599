"""`problems`: what comes with the project."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated

import typer

from beamsearch.cli.options import JsonOption, KernelBenchOption


def problems(
    problem: Annotated[
        str | None,
        typer.Argument(
            metavar="[PROBLEM]",
            help="One alone, named as for run; or a task's folder of robust-kbench, whose "
            "configurations are listed.",
        ),
    ] = None,
    kernelbench: KernelBenchOption = None,
    json: JsonOption = False,
) -> None:
    """List the problems that come along, or tell of one: shapes, dtype, least bytes, FLOPs."""
    from beamsearch.errors import ProblemError, UsageError
    from beamsearch.problem.least_work import least_work
    from beamsearch.problem.problem import find_problem, list_problems

    if kernelbench is not None and problem is None:
        raise UsageError("--kernelbench: name one of its problems, such as level1/43")
    rows: list[dict[str, object]] = []
    names = list_problems() if problem is None else configured(problem)
    for name in names:
        try:
            found = find_problem(name, kernelbench)
            work = least_work(found)
        except ProblemError as error:
            if problem is None or len(names) == 1:
                raise
            rows.append({"name": name, "failed": str(error)})  # not all that can be combined runs
            if not json:
                typer.echo(f"{name}\n    cannot be run: {error}")
            continue
        called = name if len(names) > 1 else found.name
        rows.append(
            {
                "name": called,
                "dtype": found.dtype,
                "inputs": {key: list(shape) for key, shape in work.input_shapes.items()},
                "output": list(work.output_shape),
                "least_bytes": work.least_bytes,
                "flops": work.flops,
                "input_kernel": str(found.input_kernel) if found.input_kernel else None,
            }
        )
        if not json:
            typer.echo(called)
            inputs = ", ".join(f"{key} {tuple(shape)}" for key, shape in work.input_shapes.items())
            typer.echo(f"    {inputs} -> {work.output_shape}, {found.dtype}")
            typer.echo(
                f"    least work {work.least_bytes / 1e9:.3f} GB, {work.flops / 1e9:.1f} GFLOP"
            )
    if json:
        typer.echo(json_module.dumps({"problems": rows}))


def configured(name: str) -> list[str]:
    """The names of a task's configurations; of any other problem its own."""
    from beamsearch.problem.functional import FILE, configurations, is_functional

    if not is_functional(Path(name) / FILE):
        return [name]
    return [f"{name}:{number}" for number, _ in enumerate(configurations(Path(name) / FILE), 1)]

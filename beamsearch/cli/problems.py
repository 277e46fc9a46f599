"""`problems`: what comes with the project."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated

import typer

from beamsearch.cli.options import JsonOption


def problems(
    task: Annotated[
        Path | None,
        typer.Argument(
            metavar="[TASK]", help="A folder of robust-kbench's, whose configurations are listed."
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """List the problems: shapes, dtype, least bytes, FLOPs."""
    from beamsearch.errors import ProblemError
    from beamsearch.problem.least_work import least_work
    from beamsearch.problem.problem import find_problem, list_problems

    rows: list[dict[str, object]] = []
    for name in list_problems() if task is None else configured(task):
        try:
            problem = find_problem(name)
            work = least_work(problem)
        except ProblemError as error:
            if task is None:
                raise
            rows.append({"name": name, "failed": str(error)})  # not all that can be combined runs
            if not json:
                typer.echo(f"{name}\n    cannot be run: {error}")
            continue
        rows.append(
            {
                "name": name,
                "dtype": problem.dtype,
                "inputs": {key: list(shape) for key, shape in work.input_shapes.items()},
                "output": list(work.output_shape),
                "least_bytes": work.least_bytes,
                "flops": work.flops,
                "input_kernel": str(problem.input_kernel) if problem.input_kernel else None,
            }
        )
        if not json:
            typer.echo(name)
            inputs = ", ".join(f"{key} {tuple(shape)}" for key, shape in work.input_shapes.items())
            typer.echo(f"    {inputs} -> {work.output_shape}, {problem.dtype}")
            typer.echo(
                f"    least work {work.least_bytes / 1e9:.3f} GB, {work.flops / 1e9:.1f} GFLOP"
            )
    if json:
        typer.echo(json_module.dumps({"problems": rows}))


def configured(task: Path) -> list[str]:
    """The names of a task's configurations. Raises ProblemError."""
    from beamsearch.errors import ProblemError
    from beamsearch.problem.functional import CONFIGURATIONS, FILE, configurations, is_functional

    if not is_functional(task / FILE):
        raise ProblemError(f"{task} is no task of robust-kbench: {FILE} and {CONFIGURATIONS}")
    return [f"{task}:{number}" for number, _ in enumerate(configurations(task / FILE), 1)]

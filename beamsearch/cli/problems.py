"""`problems`: what comes with the project."""

from __future__ import annotations

import json as json_module

import typer

from beamsearch.cli.options import JsonOption


def problems(json: JsonOption = False) -> None:
    """List the problems: shapes, dtype, least bytes, FLOPs."""
    from beamsearch.problem.least_work import least_work
    from beamsearch.problem.problem import find_problem, list_problems

    rows = []
    for name in list_problems():
        problem = find_problem(name)
        work = least_work(problem)
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

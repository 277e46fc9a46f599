"""`python -m tools.simulation`: strategies side by side on a landscape of measured kernels."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tools.simulation.compare import Curve

CANDIDATES = (8, 16, 32, 64)


def simulate(
    seeds: Annotated[int, typer.Option(metavar="N", min=2, help="Searches a strategy.")] = 100,
    svg: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the curves there, as SVG.")
    ] = None,
    json: bool = False,
) -> None:
    """Compare the strategies of `run` at equal candidates.

    They search landscapes fitted to recorded runs, of the playbook (and to variants written by
    hand) and of models, by the functions that a run uses. No GPU, no model; a few minutes.
    """
    import json as json_module

    from beamsearch.records.trace import write_text
    from tools.simulation.chart import chart
    from tools.simulation.compare import compare
    from tools.simulation.landscape import MODELS, PLAYBOOK, fitted

    if svg is not None:
        write_text(svg, "")  # where it cannot be written, before the work is done
    curves = compare(seeds, processes=os.cpu_count() or 1)
    if svg is not None:
        write_text(svg, chart(curves))
    if json:
        typer.echo(
            json_module.dumps({"curves": [curve.model_dump(mode="json") for curve in curves]})
        )
        return
    for name, file in (("The playbook's", PLAYBOOK), ("Models'", MODELS)):
        landscape = fitted(file)
        variants = f" and {landscape.variants} measured variants" if landscape.variants else ""
        typer.echo(
            f"{name}: {landscape.steps} measured steps{variants} of {len(landscape.starts)} "
            "problems."
        )
    typer.echo(
        "Best time over the floor after so many candidates, geometric mean of the problems, "
        f"mean of {seeds} seeds ± standard error:\n"
    )
    for line in table(curves):
        typer.echo(line)
    typer.echo("\nBeam, stopped after n rounds without a win: share of candidates made, loss:\n")
    for line in patience_table([curve for curve in curves if curve.strategy == "beam"]):
        typer.echo(line)


def table(curves: Sequence[Curve]) -> list[str]:
    """A line a world and strategy."""
    lines = [f"{'':16}  {'':10}" + "".join(f"{n:>15}" for n in CANDIDATES)]
    world = ""
    for curve in curves:
        label = "" if curve.world == world else curve.world
        world = curve.world
        cells = "".join(f"{curve.after(n)!s:>15}" for n in CANDIDATES)
        lines.append(f"{label:16}  {curve.strategy:10}{cells}")
    return lines


def patience_table(curves: Sequence[Curve]) -> list[str]:
    """A line a world: share of the candidates, and how much slower the best is."""
    heads = "".join(f"{f'n = {n}':>15}" for n in curves[0].patience)
    lines = [f"{'':16}{heads}"]
    for curve in curves:
        cells = "".join(
            f"{f'{used:.0%}, {loss - 1:.1%}':>15}" for used, loss in curve.patience.values()
        )
        lines.append(f"{curve.world:16}{cells}")
    return lines


if __name__ == "__main__":
    typer.run(simulate)

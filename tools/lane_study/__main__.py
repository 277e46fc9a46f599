"""`python -m tools.lane_study`: runs over 1 to 128 lanes, with the job times of recorded runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

MEASURED = """\
Job times of {runs} recorded runs that have an account of their lane, on one H200 each.
Measured as totals, here the mean of a job: judging, profiling, tuning, comparing and preparing on
the lane, and the start of a process. Measured one by one: the sweeps' seconds, from which those of
a candidate's compilation are drawn too, and what each worker did in each round.
Recorded are the tokens of a model's answers. Assumed: its tokens a second; {kernel} cores a
candidate's compilation; {lane} cores a lane.
"""


def study(
    seeds: Annotated[int, typer.Option(metavar="N", min=1, help="Simulations of each case.")] = 3,
    problems: Annotated[int, typer.Option(metavar="N", min=1, help="Problems of a suite.")] = 250,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw it there: .svg or .png.")
    ] = None,
) -> None:
    """How many candidates an hour a run or a suite makes on so many lanes, and what limits it.

    Job times come from recorded runs; no GPU and no model is needed. About two minutes.
    """
    from tools.lane_study.chart import draw
    from tools.lane_study.recorded import recorded_runs
    from tools.lane_study.runs import CORES_A_KERNEL, CORES_A_LANE
    from tools.lane_study.tables import Study, all_cases, check_lines, lines

    if out is not None:
        if out.suffix not in (".svg", ".png"):
            raise typer.BadParameter("its name ends in .svg or .png", param_hint="--out")
        out.touch()  # where it cannot be written, before the work is done
    done = Study(recorded_runs(), seeds, problems)
    measured = MEASURED.format(runs=len(done.recorded), kernel=CORES_A_KERNEL, lane=CORES_A_LANE)
    typer.echo(measured)
    for line in check_lines(done):
        typer.echo(line)
    done.make(all_cases(), processes=os.cpu_count() or 1)
    for line in lines(done):
        typer.echo(line)
    if out is not None:
        draw(done, out)


if __name__ == "__main__":
    typer.run(study)

"""`inject RUN KERNEL`: a person's kernel for a run's next round."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from beamsearch.cli.hint import goes_on
from beamsearch.cli.options import RunArgument


def inject(
    run: RunArgument,
    kernel: Annotated[Path, typer.Argument(metavar="KERNEL", help="A kernel file.")],
) -> None:
    """Give a run a kernel of your own.

    The run judges and times it in its next round, tunes it where it beats the best, and keeps it in
    the beam where it is correct and near the best. Nothing is judged here: no GPU is needed.
    """
    from beamsearch.run.steering import add_kernel

    given = add_kernel(run, kernel)
    typer.echo(f"{kernel} is taken ({given.description}); {goes_on(run)}")

"""`compare RUN RUN…`: several runs side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from beamsearch.cli.options import JsonOption


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="Runs' folders, two or more.")],
    json: JsonOption = False,
) -> None:
    """Compare runs: who thought, settings, best, ratios, candidates, cost, time.

    Times of two runs are of different stays on a GPU and are not held against each other: compare
    the ratios, which each run took within one stay.
    """
    from beamsearch.cli.comparison import compared, print_table
    from beamsearch.errors import UsageError

    if len(runs) < 2:
        raise UsageError("give two runs or more; `show RUN` tells of one")
    found = compared(runs)
    if json:
        typer.echo(found.model_dump_json())
    else:
        print_table(found)

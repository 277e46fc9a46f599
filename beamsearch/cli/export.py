"""`export RUN`: a run's winner as an operator of PyTorch."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from beamsearch.cli.options import RunArgument


def export(
    run: RunArgument,
    output: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder to make. Default: exports/ and the name."),
    ] = None,
) -> None:
    """Write the winner of a run as a package: an operator that stands in for the module.

    Where the kernel was verified it is called, anywhere else and for gradients the reference. The
    package has tests of its own, and needs PyTorch and Triton alone.
    """
    from beamsearch.errors import UsageError
    from beamsearch.export.package import check_name, files_of, package_name, write_package
    from beamsearch.export.winner import winner_of

    winner = winner_of(run)
    folder = output or Path("exports") / package_name(winner.problem.name)
    check_name(folder.name)
    if folder.exists():
        raise UsageError(f"{folder} is there already; give another folder with --output")
    files = files_of(winner, folder.name)
    write_package(folder, files)
    typer.echo(winner.told())
    typer.echo(f"{folder}: {', '.join(files)}")
    place = shlex.quote(str(folder))
    pytest = f"python -m pytest {place}"
    shown = folder / "README.md"
    typer.echo(f"next: {pytest} (`pip install pytest`), and `replace` as {shown} shows")

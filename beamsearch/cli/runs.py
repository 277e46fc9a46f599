"""`runs`: which runs there are; `runs clean`: what of them can go."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from beamsearch.cli.options import JsonOption

FolderArgument = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="Where runs are, at any depth. Default: runs.")
]
HERE = Path("runs")


class _Listing(TyperGroup):
    """`runs` and `runs FOLDER` are `runs list FOLDER`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        named = args[:1] and args[0] in (*self.commands, "--help")
        return super().parse_args(ctx, args if named else ["list", *args])


runs = typer.Typer(cls=_Listing, help="List runs, or free their disk space.", rich_markup_mode=None)


@runs.command("list")
def list_(folder: FolderArgument = HERE, json: JsonOption = False) -> None:
    """List runs: problem, state, best, candidates, size on disk, age. The default."""
    from beamsearch.cli.run_list import lines, listed
    from beamsearch.run.folders import find_runs

    found = find_runs(folder) if folder != HERE or folder.exists() else []
    rows = listed(found, lambda reason: typer.echo(reason, err=True))
    if json:
        typer.echo(json_module.dumps({"runs": [row.model_dump(mode="json") for row in rows]}))
        return
    for line in lines(rows) if rows else [f"no runs under {folder}"]:
        typer.echo(line)


@runs.command()
def clean(
    folder: FolderArgument = HERE,
    older_than: Annotated[
        str | None,
        typer.Option(metavar="T", help="Only runs unchanged for so long, such as 30d or 12h."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Free disk space of finished runs, with nothing lost.

    What profilers and compilers left goes, and copies of a record become one file of several names.
    Runs that are not finished or that a process works on are left as they are.
    """
    from beamsearch.cli.run_list import in_bytes, listed, spare_line
    from beamsearch.errors import UsageError
    from beamsearch.records.amounts import amount
    from beamsearch.run import folders
    from beamsearch.settings import parse_duration

    least = parse_duration(older_than) if older_than is not None else 0.0
    found = folders.find_runs(folder) if folder != HERE or folder.exists() else []
    rows = listed(found, lambda reason: typer.echo(reason, err=True))
    finished = [row for row in rows if row.state is folders.State.FINISHED and row.age_s >= least]
    spare = [folders.spare_of(Path(row.folder)) for row in finished if not row.packed]
    spare = [item for item in spare if item.freed]
    for item in spare:
        typer.echo(spare_line(item))
    if not spare:
        among = amount(len(rows), "run")
        typer.echo(f"nothing to free in {len(finished)} of {among} under {folder}")
        return
    whole = in_bytes(sum(item.freed for item in spare))
    try:
        agreed = yes or typer.confirm(f"free {whole} in {amount(len(spare), 'run')}?")
    except typer.Abort as error:
        raise UsageError("nothing is freed: nobody answered; give --yes to do it") from error
    if not agreed:
        typer.echo("nothing is freed")
        return
    freed = 0
    for item in spare:
        try:
            freed += folders.free(item.folder)
        except UsageError as error:  # somebody has begun to work on it
            typer.echo(str(error), err=True)
    typer.echo(f"freed {in_bytes(freed)}")

"""`report RUN…`: the page that a run is read on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from beamsearch.errors import UsageError

if TYPE_CHECKING:
    from beamsearch.report.run_data import RunData


def report(
    runs: Annotated[
        list[Path],
        typer.Argument(metavar="RUN…", help="Folders of runs, or one folder of a suite."),
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where to write the page.")
    ] = None,
) -> None:
    """Write a run's page: one HTML file that needs no network.

    By default report.html in the run's folder; of a packed run, its name with .html in the current
    folder. Of several runs, runs.html in the current folder compares them.
    """
    if output is not None and output.is_dir():
        raise UsageError(
            f"--output {output} is a folder; give a file, such as {output}/report.html"
        )
    if len(runs) > 1:
        typer.echo(_compared(runs, output or Path("runs.html")))
    elif (runs[0] / "suite.json").is_file():
        typer.echo(_of_suite(runs[0], output))
    else:
        typer.echo(made(runs[0], output))


def made(run: Path, output: Path | None = None) -> Path:
    """Write a run's page, and say where. Raises UsageError where there is nothing to write."""
    from beamsearch.records.packed import opened_run
    from beamsearch.report.page import leave_report, write_report
    from beamsearch.report.run_data import RunData

    trace = opened_run(run)
    place = output or default_page(run)
    if place == trace.page_file:
        leave_report(trace)
    else:
        write_report(RunData(trace), place)
    return place


def default_page(run: Path) -> Path:
    """Where a run's page is where nobody says another place."""
    from beamsearch.records.packed import ARCHIVE
    from beamsearch.records.trace import Trace

    packed = (run / ARCHIVE).is_file()
    return Path(f"{run.resolve().name}.html") if packed else Trace(run).page_file


def _of_suite(folder: Path, output: Path | None) -> Path:
    from beamsearch.suite.report import PAGE, make_report, write_report

    if output is not None:
        raise UsageError(f"the page of a suite stands in its folder; leave out --output {output}")
    write_report(folder, make_report(folder))
    return folder / PAGE


def _compared(runs: list[Path], output: Path) -> Path:
    from beamsearch.records.packed import opened_run
    from beamsearch.records.trace import Trace
    from beamsearch.report.page import write_comparison
    from beamsearch.report.run_data import RunData

    data: dict[str, RunData] = {}
    pages = {}
    for run in runs:
        name = run.name if len({other.resolve().name for other in runs}) == len(runs) else str(run)
        if name in data:
            raise UsageError(f"{run} is given twice")
        data[name] = RunData(opened_run(run))
        page = Trace(run).page_file
        if page.is_file():
            pages[name] = page.resolve().as_uri()
    write_comparison(data, pages, output)
    return output

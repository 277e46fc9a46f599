"""The report on a suite, from the records on disk alone: one row a problem, and figures of all."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection
from pathlib import Path
from urllib.parse import quote

from beamsearch.records.record import Record
from beamsearch.records.suite import Suite
from beamsearch.records.trace import write_text
from beamsearch.suite.figures import Costs, OfSource, costs, of_sources
from beamsearch.suite.in_words import COLUMNS, FIGURE_COLUMNS, cells, figure_rows, sentences, totals
from beamsearch.suite.rows import Row, row_of
from beamsearch.suite.runs import read_suite

RESULTS, PAGE = "results.csv", "report.html"


class Report(Record):
    """What `--json` prints."""

    suite: Suite
    rows: list[Row]
    figures: list[OfSource]
    costs: Costs


def make_report(folder: Path) -> Report:
    """The report on the suite in a folder, as far as its runs have come. Raises UsageError where
    there is none, or a record cannot be read."""
    suite = read_suite(folder)
    rows = [row_of(entry, folder / entry.name) for entry in suite.entries]
    figures = of_sources(rows)
    wins = sum(len(found.won) for found in figures)
    return Report(suite=suite, rows=rows, figures=figures, costs=costs(rows, wins))


def write_report(folder: Path, report: Report) -> None:
    """Write `results.csv` and `report.html`."""
    write_text(folder / RESULTS, as_csv(report))
    pages = {row.name for row in report.rows if (folder / row.name / PAGE).is_file()}
    write_text(folder / PAGE, as_page(report, folder.resolve().name, pages))


def as_csv(report: Report) -> str:
    """One line a problem; what is not known is empty, what is modelled starts with `~`."""
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(COLUMNS)
    table.writerows([list(cells(row).values()) for row in report.rows])
    return out.getvalue()


def as_page(report: Report, title: str, pages: Collection[str] = ()) -> str:
    """A page of its own, for a browser without a network or JavaScript. `pages`: names of the runs
    whose own page stands in their folder."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.j2").render(
        title=title,
        pages={name: f"{quote(name)}/{PAGE}" for name in pages},
        columns=COLUMNS,
        figure_columns=FIGURE_COLUMNS,
        rows=[(_classes(row), cells(row)) for row in report.rows],
        parts=[(sentences(of), figure_rows(of)) for of in report.figures],
        totals=totals(report.rows, report.costs),
    )


def _classes(row: Row) -> str:
    """What the page marks."""
    marks = {"failed": row.state == "failed", "flawed": bool(row.flaws)}
    return " ".join(name for name, holds in marks.items() if holds)

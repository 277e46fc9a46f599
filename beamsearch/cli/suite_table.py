"""The report on a suite in a terminal."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from beamsearch.suite.in_words import FIGURE_COLUMNS, cells, figure_rows, sentences, totals
from beamsearch.suite.report import PAGE, RESULTS, Report

SHOWN = {
    "name": "problem",
    "state": "state",
    "time_ms": "ms",
    "over_input": "input",
    "over_eager": "eager",
    "over_compile": "compile",
    "over_max_autotune": "max-autotune",
    "of_floor": "floor",
    "headroom_share": "headroom",
    "candidates": "candidates",
    "cost_usd": "$",
}
"""Columns that a terminal has room for, and what they are called there; all are in the file."""
WIDTH = 160
"""Columns of text where the output is no terminal, so that nothing is cut there."""


def print_report(report: Report, folder: Path) -> None:
    """Print the problems, the figures, and where the files are."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=WIDTH)
    problems = _table(list(SHOWN.values()))
    for row in report.rows:
        texts = cells(row)
        texts["name"] += " (flawed)" if row.flaws else ""
        problems.add_row(*(Text(texts[name]) for name in SHOWN))
    console.print(problems)
    for row in report.rows:
        if row.state != "finished" and row.notes:
            console.print(Text(f"{row.name}: {'; '.join(row.notes)}"), soft_wrap=True)
    for found in report.figures:
        heading, *others = sentences(found)
        console.print(Text(f"\n{heading}"), soft_wrap=True)
        figures = _table(list(FIGURE_COLUMNS))
        for line in figure_rows(found):
            figures.add_row(*map(Text, line))
        console.print(figures)
        for sentence in others:
            console.print(Text(sentence), soft_wrap=True)
    console.print(Text(f"\n{totals(report.rows, report.costs)}"), soft_wrap=True)
    console.print(Text(f"files: {folder / RESULTS}, {folder / PAGE}"), soft_wrap=True)


def _table(names: list[str]) -> Table:
    table = Table(box=None, pad_edge=False)
    for number, name in enumerate(names):
        table.add_column(Text(name), justify="right" if number > 1 else "left")
    return table

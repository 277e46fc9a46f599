"""`questions RUN`: what a run asks through batch files, as plain texts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from beamsearch.cli.options import RunArgument

FOLDER = "questions"
"""Of a run's folder, where questions and replies are, unless another is named."""


def questions(
    run: RunArgument,
    to: Annotated[
        Path | None,
        typer.Option("--to", metavar="DIR", help="Where to. Default: `questions` in the run."),
    ] = None,
) -> None:
    """Write what a run asks as plain texts.

    For a person or a chat window: of a run with --llm batch that waits for answers, one text each
    question. A reply goes beside its question, with .reply in place of .txt; `answers` takes it.
    """
    from beamsearch.llm.by_hand import QUESTION, REPLY, write_questions
    from beamsearch.paths import command
    from beamsearch.records.amounts import amount

    folder = run / FOLDER if to is None else to
    names = write_questions(run, folder)
    typer.echo(f"in {folder}, {amount(len(names), 'question')}:")
    for name in names:
        typer.echo(f"  {name}{QUESTION}")
    typer.echo(f"put each reply beside it, such as {names[0]}{REPLY}; then:")
    typer.echo(command("answers", run) if to is None else command("answers", run, "--from", to))

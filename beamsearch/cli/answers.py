"""`answers RUN`: replies that are plain texts, taken into a run that waits for them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from beamsearch.cli.options import RunArgument
from beamsearch.cli.questions import FOLDER


def answers(
    run: RunArgument,
    source: Annotated[
        Path | None,
        typer.Option("--from", metavar="DIR", help="Where. Default: `questions` in the run."),
    ] = None,
) -> None:
    """Take the replies to what a run asks.

    Each is a text beside its question, as `questions` wrote it, with .reply in place of .txt. What
    has no reply stays open. `resume` goes on with the run.
    """
    from beamsearch.llm.by_hand import take_replies
    from beamsearch.paths import command

    found = take_replies(run, run / FOLDER if source is None else source)
    count, still_open = len(found.taken), found.still_open
    replies = "reply is" if count == 1 else "replies are"
    left = f"still open: {', '.join(still_open)}" if still_open else "nothing is open any more"
    typer.echo(f"{count} {replies} taken into {found.file}; {left}")
    if still_open:
        typer.echo("answer these too, or go on without them:")
    typer.echo(command("resume", run))

"""`hint RUN "text"`: a person's advice for the rounds that are still to come."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from beamsearch.cli.options import RunArgument

if TYPE_CHECKING:
    from pathlib import Path

    from beamsearch.records.steering import Hint
    from beamsearch.records.trace import Trace


def hint(
    run: RunArgument,
    text: Annotated[
        str | None,
        typer.Argument(metavar="TEXT", help="The advice, in quotes. Without it: a list."),
    ] = None,
    remove: Annotated[
        int | None,
        typer.Option(metavar="N", help="Take hint N away; rounds that began with it keep it."),
    ] = None,
) -> None:
    """Advise a run, or list the advice it has.

    Every prompt of the rounds that begin from now on holds it, as what a person said, who may be
    wrong. The run may be running in another process, waiting, stopped or finished.
    """
    from beamsearch.errors import UsageError
    from beamsearch.run.steering import add_hint, remove_hint, steered

    if text is not None and remove is not None:
        raise UsageError("give a text or --remove, not both")
    if text is not None:
        given = add_hint(run, text)
        typer.echo(f"hint {given.number} is taken; {goes_on(run)}")
    elif remove is not None:
        typer.echo(f"hint {remove_hint(run, remove).number} is taken away from later rounds")
    else:
        trace = steered(run)
        hints = trace.steering().hints
        for line in [described(trace, item) for item in hints] or [f"{run} has no hints"]:
            typer.echo(line)


def described(trace: Trace, hint: Hint) -> str:
    """A hint in a line, with the rounds in which it counted."""
    from beamsearch.run.person import plans_of

    plans = plans_of(trace).items()
    rounds = [number for number, plan in plans if hint.number in {h.number for h in plan.hints}]
    if not rounds:
        when = "taken away before any round" if hint.removed else "in no round yet"
    elif hint.removed:
        when = f"rounds {rounds[0]} to {rounds[-1]}, then taken away"
    else:
        when = f"from round {rounds[0]} on"
    return f"{hint.number}  {when}: {' '.join(hint.text.split())}"


def goes_on(run: Path) -> str:
    """When the run takes what a person gave it now, and what to do for that."""
    from beamsearch.run.folders import State, state_of
    from beamsearch.run.person import plans_of, resume_command
    from beamsearch.run.steering import steered

    trace = steered(run)
    record = trace.run_record()
    settings, state = record.settings, state_of(run, record)
    if state is State.RUNNING and len(plans_of(trace)) < settings.rounds:
        return "the run takes it when its next round begins"
    now = "the last round has begun" if state is State.RUNNING else f"the run is {state}"
    return f"{now}; to go on with it: {resume_command(trace, settings)}"

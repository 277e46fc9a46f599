"""`watch RUN`: the live view of a run that another process works on, from its trace."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from beamsearch.cli.options import RunArgument
from beamsearch.errors import BeamsearchError, Stopped, Waiting
from beamsearch.paths import command

if TYPE_CHECKING:
    from beamsearch.records.candidate import Candidate
    from beamsearch.records.trace import Trace
    from beamsearch.run.snapshot import Snapshot

POLL_S = 0.5


def watch(run: RunArgument) -> None:
    """Watch a run that goes on in another process.

    Shows what that process shows, from the run's folder alone; the run is not disturbed, and
    Ctrl-C ends the watching only. In a terminal it stays while the run waits for answers to a
    batch. It ends with the run, and says how to go on with one that did not finish.
    """
    from beamsearch.records.packed import opened_run

    try:
        _await_start(run)
        trace = opened_run(run)
        now = _on_screen(trace) if sys.stdout.isatty() else _in_lines(trace)
    except KeyboardInterrupt:
        typer.echo(f"no longer watched; to watch it again: {command('watch', run)}")
        return
    _tell_end(now, run)


def _await_start(folder: Path) -> None:
    """Return once a run that is only starting has a record to be read."""
    from beamsearch.records.trace import Trace
    from beamsearch.run.lock import is_worked_on

    record = Trace(folder).run_file
    if record.is_file() or not is_worked_on(folder):
        return
    typer.echo("the run is starting: there is nothing to be seen yet", err=True)
    while not record.is_file() and is_worked_on(folder):
        time.sleep(POLL_S)


def _waits(now: Snapshot, trace: Trace) -> bool:
    """Whether the run stopped to be given answers to its questions."""
    return now.record.status == "waiting" and any(trace.folder.glob("requests*.jsonl"))


def _on_screen(trace: Trace) -> Snapshot:
    """The screen, until there is nothing more to be seen; the last that was read."""
    from beamsearch.cli.live import Screen, terminal
    from beamsearch.run.snapshot import SnapshotReader

    reader = SnapshotReader(trace)
    now = reader.read()
    if not (now.is_worked_on or _waits(now, trace)):
        return now
    screen = Screen(terminal(), trace, "Ctrl-C ends the watching, not the run")
    screen.start()
    try:
        while now.is_worked_on or _waits(now, trace):
            time.sleep(POLL_S)
            now = screen.snapshot() or now
        return reader.read()
    finally:
        screen.stop()


def _in_lines(trace: Trace) -> Snapshot:
    """What the run prints as lines, from the round under way on; the last that was read."""
    from beamsearch.cli.display import PlainDisplay
    from beamsearch.run.snapshot import SnapshotReader
    from beamsearch.search.directions import Plan

    reader, display = SnapshotReader(trace), PlainDisplay(sys.stdout)
    now = reader.read()
    display.run_started(now.record, trace.folder)
    rounds = max(0, len(now.rounds) - 1)
    judged = {c.name for record in now.rounds for c in record.candidates}
    dealt = 0

    def tell(candidates: list[Candidate]) -> None:
        for candidate in candidates:
            if candidate.name not in judged:
                judged.add(candidate.name)
                display.candidate(candidate)

    while True:
        display.activity = now.activity or display.activity
        for record in now.rounds[rounds:]:
            tell(record.candidates)
            display.tell_round(record, now.record)
        rounds = len(now.rounds)
        for number in [number for number in now.plans if number > dealt]:
            dealt = number
            display.round_started(number, Plan(assignments=now.plans[number]))
        tell(now.under_way)
        if not now.is_worked_on:
            return now
        time.sleep(POLL_S)
        now = reader.read()


def _tell_end(now: Snapshot, run: Path) -> None:
    """Say how the run stands, which nobody works on. Raises what the command is to end with."""
    from beamsearch.cli.display import closing

    record = now.record
    for line in closing(record, run, told=record.notes):
        typer.echo(line)
    again = f"go on with: {command('resume', run)}"
    if record.status == "finished":
        return
    if record.status == "running":
        raise BeamsearchError(f"nobody works on this run: its process was killed; {again}")
    if record.status == "waiting":
        raise Waiting(f"{record.stop_reason}; then: {command('resume', run)}")
    raise Stopped(f"this run was stopped ({record.stop_reason}); {again}")

"""`show RUN`: a run in one screen, from its records."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from beamsearch.commands.options import JsonOption, RunArgument

if TYPE_CHECKING:
    from beamsearch.records.round import RoundRecord
    from beamsearch.records.run import RunRecord


def show(run: RunArgument, json: JsonOption = False) -> None:
    """Summarise a run from its records.

    Rounds, candidates, speedups, multiple of the floor, notes.
    """
    from beamsearch.records.trace import Trace

    trace = Trace(run)
    record, rounds = trace.run_record(), trace.completed_rounds()
    if json:
        typer.echo(
            json_module.dumps(
                {
                    "run": record.model_dump(mode="json"),
                    "rounds": [item.model_dump(mode="json") for item in rounds],
                }
            )
        )
        return
    for line in [*summary(record), "", *table(record, rounds), "", *ending(record, run)]:
        typer.echo(line)


def summary(record: RunRecord) -> list[str]:
    """Problem, machine, settings, baselines."""
    from beamsearch.display import opening, yardsticks

    where = record.environment
    machine = where.gpu or f"no GPU, compiled for {where.target}"
    reason = f" ({record.stop_reason})" if record.stop_reason else ""
    return [
        f"{record.status}{reason}; {machine}; torch {where.torch}, triton {where.triton}, "
        f"ncu {where.ncu or 'none'}",
        *opening(record),
        *yardsticks(record),
    ]


def table(record: RunRecord, rounds: list[RoundRecord]) -> list[str]:
    """A line a round, and its candidates below it."""
    from beamsearch.display import describe_candidate
    from beamsearch.report.numbers import of_floor, sign

    by_number = {item.round: item for item in record.rounds}
    lines = []
    for item in rounds:
        line = by_number.get(item.round)
        told = f"round {item.round}"
        if line is not None and line.best is not None:
            about, multiple = sign(line.best_time), of_floor(line.best_time, record)
            told += f"  best {line.best} {line.best_time}"
            told += f"  {about}{line.speedup:.2f}x" if line.speedup is not None else ""
            told += f"  {about}{multiple:.2f}x the floor" if multiple is not None else ""
            told += f"  {line.correct} of {line.candidates} correct"
        told += "  win" if item.win else ""
        lines.append(told)
        lines += [f"    {describe_candidate(candidate)}" for candidate in item.candidates]
    return lines


def ending(record: RunRecord, folder: Path) -> list[str]:
    """The best, what it cost, notes."""
    from beamsearch.display import closing

    lines = closing(record, folder, told=record.notes)
    if record.totals.model_calls:
        totals = record.totals
        lines.append(
            f"{totals.model_calls} model calls, {totals.tokens_in} tokens in, "
            f"{totals.tokens_out} out"
        )
    return lines

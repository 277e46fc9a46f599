"""`show RUN`: a run in one screen, from its records."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from beamsearch.cli.options import JsonOption, RunArgument
from beamsearch.errors import UsageError

if TYPE_CHECKING:
    from beamsearch.llm.costs import Paid
    from beamsearch.records.run import RunRecord
    from beamsearch.records.trace import Trace


def show(
    run: RunArgument,
    json: JsonOption = False,
    page: Annotated[
        bool, typer.Option("--open", help="Open its page in a browser, made where it is missing.")
    ] = False,
) -> None:
    """Summarise a run from its records.

    Rounds, candidates, speedups, multiple of the floor, what the model calls cost, notes.
    """
    if page:
        open_page(run)
        return
    from beamsearch.cli.round_table import table
    from beamsearch.llm.costs import paid, run_prices
    from beamsearch.records.packed import opened_run

    trace = opened_run(run)
    record, rounds = trace.run_record(), trace.completed_rounds()
    speedups = {line.round: line.speedup for line in record.rounds}
    cost = paid(trace, run_prices(trace, record.settings.prices), speedups)
    if json:
        typer.echo(
            json_module.dumps(
                {
                    "run": record.model_dump(mode="json"),
                    "rounds": [item.model_dump(mode="json") for item in rounds],
                    "paid": cost.model_dump(mode="json"),
                }
            )
        )
        return
    for line in [
        *summary(record),
        "",
        *table(trace, record),
        "",
        *ending(record, trace, run),
        *costs(cost),
    ]:
        typer.echo(line)


def open_page(run: Path) -> None:
    """Open the run's page. Raises UsageError where no browser can be started."""
    import webbrowser

    from beamsearch.cli.report import default_page, made

    place = default_page(run)
    if not place.is_file():
        place = made(run)
    typer.echo(place)
    if not webbrowser.open(place.resolve().as_uri()):
        raise UsageError(f"no browser could be started here; open {place} in one")


def summary(record: RunRecord) -> list[str]:
    """Problem, machine, settings, baselines."""
    from beamsearch.cli.display import opening, yardsticks

    where = record.environment
    machine = where.gpu or f"no GPU, compiled for {where.target}"
    reason = f" ({record.stop_reason})" if record.stop_reason else ""
    return [
        f"{record.status}{reason}; {machine}; torch {where.torch}, triton {where.triton}, "
        f"ncu {where.ncu or 'none'}",
        *opening(record),
        *yardsticks(record),
    ]


def ending(record: RunRecord, trace: Trace, folder: Path) -> list[str]:
    """The best, notes, and what reviews were worth."""
    from beamsearch.cli.display import closing
    from beamsearch.records.amounts import amount
    from beamsearch.records.ratios import ranked_time
    from beamsearch.report.numbers import of_floor

    lines = closing(record, folder, told=record.notes)
    by_name = {c.name: c for item in trace.completed_rounds() for c in item.candidates}
    best = by_name.get(record.best or "")
    time = ranked_time(trace, by_name.values(), best) if best is not None else None
    if record.confirmation is not None and time is not None:
        multiple = of_floor(time, record)
        floor = f", {multiple:.2f}x the floor" if multiple is not None else ""
        lines.insert(
            1,
            "      timed again at the end, taking turns with the input and the baselines; in its "
            f"round {time}{floor}",
        )
    seen = record.totals.review
    if seen is not None:
        lines.append(
            f"reviews: {seen.right} of {amount(seen.flags, 'flag')} right, {seen.missed} of "
            f"{amount(seen.failures, 'failure')} missed, {seen.set_aside} set aside"
        )
    return lines


def costs(paid: Paid) -> list[str]:
    """What the models were paid, and what for; nothing where none was asked."""
    if not paid.total.calls:
        return []
    from beamsearch.cli.account import in_all
    from beamsearch.records.amounts import amount

    lines, priced = ["", in_all(paid)], paid.total.without_cost < paid.total.calls
    if paid.cost_per_win_usd is not None:
        lines[-1] += f"; ${paid.cost_per_win_usd:.4f} a win"
    if paid.hand_overs:
        lines[-1] += f"; {amount(paid.hand_overs, 'hand-over')} of batch files"
    lines += [f"    {purpose}: {part}" for purpose, part in paid.by_purpose.items()]
    models = paid.by_model.items()
    lines += [f"    {model}, {amount(part.wins, 'win')}: {part}" for model, part in models]
    lines.append(f"best against {'cost' if priced else 'tokens'}:")
    for point in paid.curve:
        cost = amount(point.tokens, "token")
        if priced and point.cost_usd is not None:
            cost = f"${point.cost_usd:.4f}"
        gain = f"  {point.speedup:.2f}x" if point.speedup is not None else ""
        lines.append(f"    round {point.round}  {cost}  {point.best}{gain}")
    return lines

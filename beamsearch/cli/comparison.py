"""Several runs side by side, each by its own records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from string import ascii_uppercase
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from beamsearch.cli.suite_table import WIDTH
from beamsearch.llm.costs import Sum, paid, run_prices
from beamsearch.records.baselines import BASELINES, called
from beamsearch.records.measurement import Measurement
from beamsearch.records.packed import opened_run
from beamsearch.records.record import Record
from beamsearch.report.numbers import clock, progress, sign
from beamsearch.report.words import spread
from beamsearch.run.candidates import source_fingerprint
from beamsearch.run.folders import State, state_of


class Compared(Record):
    """One of the runs."""

    folder: str
    problem: str
    dtype: str
    scaled: str
    state: State
    who_thinks: str
    target: str
    """The GPU that its times are of."""
    torch: str
    triton: str
    best: str | None
    confirmed: bool
    """Whether the next five are of the run's own confirmation, and not of its last round."""
    time: Measurement | None
    over_input: float | None
    over: dict[str, float]
    """Speedup over each baseline."""
    of_floor: float | None
    floor_ms: float | None
    """The run's own, by the ceilings that it measured."""
    rounds: int
    wins: int
    candidates: int
    correct: int
    paid: Sum
    seconds: float


class SideBySide(Record):
    """All of them."""

    runs: list[Compared]
    settings: dict[str, list[Any]]
    """Those that differ, a value a run."""
    same_problem: bool
    """Also in dtype and size."""
    same_input: bool
    """Whether they began with the same kernel, so that speedups over it compare."""
    same_target: bool


def compared(folders: Sequence[Path]) -> SideBySide:
    """Runs, packed or not. Raises UsageError where one cannot be read."""
    traces = [opened_run(folder) for folder in folders]
    records = [trace.run_record() for trace in traces]
    runs = []
    for folder, trace, record in zip(folders, traces, records, strict=True):
        now, where = progress(record), record.environment
        runs.append(
            Compared(
                folder=str(folder),
                problem=record.problem,
                dtype=record.problem_dtype,
                scaled=record.scaled,
                state=state_of(folder, record),
                who_thinks=record.who_thinks,
                target=where.gpu or f"none; modelled for {where.target}",
                torch=where.torch,
                triton=where.triton,
                best=now.best,
                confirmed=record.confirmation is not None,
                time=now.time,
                over_input=now.over_input,
                over=now.over,
                of_floor=now.of_floor,
                floor_ms=record.floor.time_ms if record.floor else None,
                rounds=max(0, len(record.rounds) - 1),
                wins=record.totals.wins,
                candidates=record.totals.candidates,
                correct=record.totals.correct,
                paid=paid(trace, run_prices(trace, record.settings.prices), {}).total,
                seconds=record.totals.seconds,
            )
        )
    settings = [record.settings.model_dump(mode="json") for record in records]
    problems = {
        (trace.problem_file.read_text(), run.dtype, run.scaled)
        for trace, run in zip(traces, runs, strict=True)
    }
    return SideBySide(
        runs=runs,
        settings={
            name: [one[name] for one in settings]
            for name in settings[0]
            if any(one[name] != settings[0][name] for one in settings)
        },
        same_problem=len(problems) == 1,
        same_input=len({source_fingerprint(trace.first_source()) for trace in traces}) == 1,
        same_target=len({run.target for run in runs}) == 1,
    )


def print_table(found: SideBySide) -> None:
    """A column a run, and what may not be read from it."""
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=WIDTH)
    letters = [_letter(number) for number in range(len(found.runs))]
    for letter, run in zip(letters, found.runs, strict=True):
        console.print(Text(f"{letter}  {run.folder}"), soft_wrap=True)
    table = Table(box=None, pad_edge=False)
    for name in ("", *letters):
        table.add_column(Text(name))
    for name, texts in rows(found):
        table.add_row(Text(name), *map(Text, texts))
    console.print()
    console.print(table)
    console.print()
    for sentence in sentences(found):
        console.print(Text(sentence), soft_wrap=True)


def _letter(number: int) -> str:
    """A, B, …, Z, AA."""
    more, last = divmod(number, len(ascii_uppercase))
    return (_letter(more - 1) if more else "") + ascii_uppercase[last]


def rows(found: SideBySide) -> list[tuple[str, list[str]]]:
    """What is told of the runs, and a text for each; what none of them has is left out."""
    tellers: dict[str, Callable[[Compared], str]] = {
        "problem": lambda run: f"{run.problem} in {run.dtype}",
        "scaled to": lambda run: run.scaled,
        "state": lambda run: str(run.state),
        "who thinks": lambda run: run.who_thinks,
        "GPU": lambda run: run.target,
        "torch, triton": lambda run: f"{run.torch}, {run.triton}",
    }
    told = [(name, [tell(run) for run in found.runs]) for name, tell in tellers.items()]
    for name, values in found.settings.items():
        told.append((name, ["none" if value is None else str(value) for value in values]))
    tellers = {
        "best": lambda run: run.best or "",
        "time": _time,
        "over input": lambda run: _times(run, run.over_input),
        **{f"over {called(name)}": partial(_over, name) for name in BASELINES},
        "of its floor": lambda run: _times(run, run.of_floor),
        "floor": lambda run: f"{run.floor_ms:.4g} ms" if run.floor_ms else "",
        "rounds, wins": lambda run: f"{run.rounds}, {run.wins}",
        "candidates": lambda run: f"{run.candidates}, {run.correct} correct",
        "cost": lambda run: run.paid.cost if run.paid.calls else "",
        "tokens": lambda run: _tokens(run.paid),
        "took": lambda run: clock(run.seconds),
    }
    told += [(name, [tell(run) for run in found.runs]) for name, tell in tellers.items()]
    return [(name, texts) for name, texts in told if any(texts)]


def _time(run: Compared) -> str:
    if run.time is None:
        return ""
    sure = run.confirmed or run.time.source == "modelled"
    return f"{spread(run.time)}{'' if sure else ', not confirmed'}"


def _over(baseline: str, run: Compared) -> str:
    return _times(run, run.over.get(baseline))


def _times(run: Compared, ratio: float | None) -> str:
    return "" if ratio is None else f"{sign(run.time)}{ratio:.2f}x"


def _tokens(paid: Sum) -> str:
    return f"{paid.tokens_in} in, {paid.tokens_out} out" if paid.calls else ""


def sentences(found: SideBySide) -> list[str]:
    """What of the table compares, and what does not."""
    told = [
        "Times of two runs are of different stays on a GPU and do not compare; ratios do, each "
        "taken within one stay (brackets: 20th and 80th percentile)."
    ]
    if any(run.time is not None and run.time.source == "modelled" for run in found.runs):
        told.append("~ is modelled, and never compares with what was measured.")
    if not found.same_problem:
        told.append("The problems differ: of two problems no number compares.")
    elif not found.same_input:
        told.append("The input kernels differ: speedups over them do not compare.")
    if not found.same_target:
        told.append("The GPUs differ: what is faster on one may be slower on the other.")
    return told

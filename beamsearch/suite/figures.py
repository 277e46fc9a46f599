"""What the runs of a suite come to, in the figures that the field reports. Pure functions of rows;
measured and modelled times never meet in one figure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Literal

from beamsearch.records.baselines import BASELINES
from beamsearch.records.record import Record
from beamsearch.suite.rows import Row

THRESHOLDS = (0.0, 0.5, 0.8, 1.0, 1.2, 1.5, 2.0)
"""The p of fast_p."""


class Average(Record):
    """Of as many problems as have the number."""

    count: int
    mean: float
    """Geometric of speedups, arithmetic of shares."""
    median: float


class Figures(Record):
    """Figures of some problems."""

    problems: int
    """All, those that failed or have yet to run included."""
    correct: int
    """Those with a correct winner."""
    fast: dict[str, dict[str, float]] = {}
    """Baseline -> p -> share of all problems; empty without baselines."""
    over: dict[str, Average] = {}
    """Speedups over `input` and each baseline."""
    headroom: Average | None = None
    """Shares of the headroom."""


class Point(Record):
    """The gain after so many candidates."""

    candidates: int
    still: int
    """Problems that made so many; the others count with their last gain."""
    speedup: float
    """Geometric mean."""


class OfSource(Record):
    """The figures of all problems whose times are measured, or modelled, and of those that have
    none."""

    source: Literal["measured", "modelled"]
    gpus: list[str]
    raw: Figures
    """The winners as they are."""
    recommended: Figures | None = None
    """A baseline taken wherever it beats the winner by more than the noise; none where no problem
    has baselines."""
    raw_without_flawed: Figures | None = None
    """None where no problem has a flaw."""
    recommended_without_flawed: Figures | None = None
    won: list[str] = []
    """Problems whose winner beats every baseline by more than the noise."""
    faster_baseline: list[str] = []
    """Problems where a baseline beats the winner so."""
    little_headroom: list[str] = []
    """Problems whose best baseline is so near to the floor that a share means nothing."""
    gains: list[Point] = []
    """Over the input kernel."""
    gains_over_baseline: list[Point] = []
    """Over each problem's best baseline."""


class Costs(Record):
    """What all runs took."""

    seconds: float
    tokens: int
    cost_usd: float | None
    """None where a call has no known price."""
    per_problem_usd: float | None
    """Over the problems that were begun."""
    per_win_usd: float | None
    """Over the problems won; None without one."""


def fast_p(speedups: Sequence[float | None], problems: int, p: float) -> float:
    """Share (0..1) of all problems whose winner is correct and more than p times as fast as the
    baseline: KernelBench's figure (Ouyang et al., 2025). `speedups` are of the correct winners;
    one that is not known counts for p = 0 alone."""
    if not problems:
        return 0.0
    return sum(p == 0 or (s is not None and s > p) for s in speedups) / problems


def geometric(values: Sequence[float]) -> Average | None:
    """Geometric mean and median of speedups; None of none."""
    if not values:
        return None
    return Average(
        count=len(values),
        mean=statistics.geometric_mean(values),
        median=statistics.median(values),
    )


def arithmetic(values: Sequence[float]) -> Average | None:
    """Mean and median of shares; None of none."""
    if not values:
        return None
    return Average(
        count=len(values), mean=statistics.fmean(values), median=statistics.median(values)
    )


def figures(rows: Sequence[Row], taken: bool = False) -> Figures:
    """The figures of rows whose times are of one source. `taken`: a baseline that beats a winner
    by more than the noise stands in its place."""
    correct = [row for row in rows if row.is_correct]

    def known(of: Callable[[Row], float | None]) -> list[float]:
        return [value for value in map(of, correct) if value is not None]

    timed = [name for name in BASELINES if any(name in row.baselines_ms for row in correct)]
    averages = {
        name: geometric(known(lambda row, name=name: row.over(name, taken)))  # type: ignore[misc]
        for name in ("input", *timed)
    }
    return Figures(
        problems=len(rows),
        correct=len(correct),
        fast={
            name: {
                f"{p:g}": fast_p([row.over(name, taken) for row in correct], len(rows), p)
                for p in THRESHOLDS
            }
            for name in timed
        },
        over={name: average for name, average in averages.items() if average is not None},
        headroom=arithmetic(known(lambda row: row.headroom_share(taken))),
    )


def gain_curve(gains: Sequence[Sequence[float]]) -> list[Point]:
    """How the speedup grows with the candidates judged: after 1, 2, 4, 8… and after all. `gains`
    has a problem's speedup after each candidate; a problem with fewer counts with its last, one
    without any is left out."""
    curves = [curve for curve in gains if curve]
    most, count, counts = max(map(len, curves), default=0), 1, []
    while count < most:
        counts.append(count)
        count *= 2
    return [
        Point(
            candidates=n,
            still=sum(len(curve) >= n for curve in curves),
            speedup=statistics.geometric_mean(curve[min(n, len(curve)) - 1] for curve in curves),
        )
        for n in (*counts, *([most] if most else []))
    ]


def of_sources(rows: Sequence[Row]) -> list[OfSource]:
    """The figures of measured times and of modelled ones, as far as there are any."""
    found = []
    for source in ("measured", "modelled"):
        here = [row for row in rows if row.source == source]
        if not here:
            continue
        whole = [row for row in rows if row.source in (source, None)]
        sound = [row for row in whole if not row.flaws]
        has_baselines = any(row.baselines_ms for row in here)
        is_flawed = len(sound) < len(whole)
        found.append(
            OfSource(
                source=source,
                gpus=sorted({row.gpu for row in here if row.gpu}),
                raw=figures(whole),
                recommended=figures(whole, taken=True) if has_baselines else None,
                raw_without_flawed=figures(sound) if is_flawed else None,
                recommended_without_flawed=(
                    figures(sound, taken=True) if is_flawed and has_baselines else None
                ),
                won=[row.name for row in here if row.is_won],
                faster_baseline=[row.name for row in here if row.faster_baseline],
                little_headroom=[
                    row.name for row in here if row.baselines_ms and not row.has_headroom
                ],
                gains=gain_curve([row.gains for row in here]),
                gains_over_baseline=gain_curve([row.gains_over_baseline for row in here]),
            )
        )
    return found


def costs(rows: Sequence[Row], wins: int) -> Costs:
    """What all runs took, in all, per problem begun and per problem won."""
    # One may have begun and wait for a larger limit.
    begun = sum(row.state != "waiting" or row.dtype != "" for row in rows)
    known = [row.cost_usd for row in rows if row.cost_usd is not None]
    total = sum(known) if len(known) == len(rows) else None
    return Costs(
        seconds=sum(row.seconds for row in rows),
        tokens=sum(row.tokens for row in rows),
        cost_usd=total,
        per_problem_usd=None if total is None or not begun else total / begun,
        per_win_usd=None if total is None or not wins else total / wins,
    )

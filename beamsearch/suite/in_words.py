"""A suite's rows and figures as text, the same in every view of them."""

from __future__ import annotations

from collections.abc import Sequence

from beamsearch.records.baselines import BASELINES, called
from beamsearch.suite.figures import THRESHOLDS, Average, Costs, Figures, OfSource, Point
from beamsearch.suite.rows import LEAST_HEADROOM, Row

COLUMNS = (
    "name",
    "state",
    "dtype",
    "winner",
    "time_ms",
    "input_ms",
    *(f"{name}_ms" for name in BASELINES),
    "floor_ms",
    "over_input",
    *(f"over_{name}" for name in BASELINES),
    "of_floor",
    "headroom_share",
    "candidates",
    "correct",
    "rounds",
    "attempts_to_last_win",
    "seconds",
    "tokens",
    "cost_usd",
    "flaws",
    "source",
    "notes",
)
"""Of `results.csv`; `over_` are speedups, `of_floor` is a multiple."""
FIGURE_COLUMNS = (
    "kernels",
    "over",
    *(f"fast_{p:g}" for p in THRESHOLDS),
    "geometric mean",
    "median",
    "of",
)


def cells(row: Row) -> dict[str, str]:
    """A row's text by column, empty where there is nothing."""
    about = "~" if row.source == "modelled" else ""

    def number(value: float | None, form: str = ".4g") -> str:
        return "" if value is None else f"{about}{value:{form}}"

    texts = [
        row.name,
        row.state,
        row.dtype,
        row.winner or "",
        number(row.time_ms),
        number(row.input_ms),
        *(number(row.baselines_ms.get(name)) for name in BASELINES),
        number(row.floor_ms),
        number(row.over("input"), ".3f"),
        *(number(row.over(name), ".3f") for name in BASELINES),
        number(row.of_floor, ".3f"),
        number(row.headroom_share(), ".2f"),
        str(row.candidates),
        str(row.correct),
        str(row.rounds),
        "" if row.attempts is None else str(row.attempts),
        f"{row.seconds:.0f}",
        str(row.tokens),
        "" if row.cost_usd is None else f"{row.cost_usd:.4f}",
        ", ".join(row.flaws),
        row.source or "",
        "; ".join(row.notes),
    ]
    return dict(zip(COLUMNS, texts, strict=True))


def figure_rows(found: OfSource) -> list[list[str]]:
    """The table of figures, one line a baseline and way to count, under `FIGURE_COLUMNS`."""
    about = "~" if found.source == "modelled" else ""
    ways: list[tuple[str, Figures | None]] = [
        ("as they are", found.raw),
        ("a baseline where it is faster", found.recommended),
        ("as they are, no flaws", found.raw_without_flawed),
        ("a baseline where it is faster, no flaws", found.recommended_without_flawed),
    ]
    return [
        [
            way,
            called(name),
            *(
                f"{found_.fast[name][f'{p:g}']:.0%}" if name in found_.fast else "–"
                for p in THRESHOLDS
            ),
            f"{about}{average.mean:.3f}",
            f"{about}{average.median:.3f}",
            str(average.count),
        ]
        for way, found_ in ways
        if found_ is not None
        for name, average in found_.over.items()
    ]


def sentences(found: OfSource) -> list[str]:
    """What a source's figures say beside the table; the first is its heading."""
    raw = found.raw
    gpus = ", ".join(found.gpus)
    kind = f"Measured on {gpus}" if found.source == "measured" else f"Modelled for {gpus} (~)"
    lines = [f"{kind}: {raw.problems} problems, {raw.correct} with a correct kernel"]
    if found.recommended is None:
        lines.append("no baseline was timed: there is no fast_p, no headroom and no win here")
    else:
        lines += _headroom("as they are", raw.headroom)
        lines += _headroom("a baseline where it is faster", found.recommended.headroom)
        lines += _headroom("as they are, no flaws", _of(found.raw_without_flawed))
        lines += _headroom(
            "a baseline where it is faster, no flaws", _of(found.recommended_without_flawed)
        )
        lines += _named(
            f"little headroom, best baseline within {LEAST_HEADROOM:g} times the floor",
            found.little_headroom,
        )
        lines += _named("faster than every baseline", found.won)
        lines += _named("slower than a baseline, which is what to use there", found.faster_baseline)
    about = "~" if found.source == "modelled" else ""
    lines += _grown("the input kernel", found.gains, about)
    lines += _grown("the best baseline", found.gains_over_baseline, about)
    return lines


def totals(rows: Sequence[Row], costs: Costs) -> str:
    """What all took, in one line."""
    states = {
        state: sum(row.state == state for row in rows)
        for state in dict.fromkeys(row.state for row in rows)
    }
    told = [f"{count} {state}" for state, count in states.items()]
    told.append(f"{costs.seconds:.0f} s")
    if costs.tokens:
        told.append(f"{costs.tokens} tokens")
        told.append("cost not known" if costs.cost_usd is None else f"${costs.cost_usd:.4f}")
    if costs.per_problem_usd:
        told.append(f"${costs.per_problem_usd:.4f} a problem")
    if costs.per_win_usd:
        told.append(f"${costs.per_win_usd:.4f} a problem that is faster than every baseline")
    flawed = sum(bool(row.flaws) for row in rows)
    if flawed:
        told.append(f"{flawed} with flaws, where a win may mean little")
    return f"{len(rows)} problems: {', '.join(told)}"


def _grown(over: str, points: Sequence[Point], about: str) -> list[str]:
    told = [
        f"{about}{point.speedup:.3f} after {point.candidates} ({point.still} made so many)"
        for point in points
    ]
    return [f"speedup over {over} by candidates: {', '.join(told)}"] if told else []


def _of(figures: Figures | None) -> Average | None:
    return None if figures is None else figures.headroom


def _headroom(what: str, average: Average | None) -> list[str]:
    if average is None:
        return []
    return [
        f"share of the headroom, {what}: mean {average.mean:.2f}, median {average.median:.2f} "
        f"of {average.count}"
    ]


def _named(what: str, names: Sequence[str]) -> list[str]:
    return [f"{what} ({len(names)}): {', '.join(names)}"] if names else []

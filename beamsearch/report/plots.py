"""A run's plots as SVG, in colours that follow the page's theme."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from markupsafe import escape

from beamsearch.records.baselines import called
from beamsearch.records.candidate import Candidate
from beamsearch.report.run_data import RunData

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure


COLOURS = {
    "--ink": "#010203",
    "--faint": "#010204",
    "--best": "#010205",
    "--other": "#010206",
    "--floor": "#010207",
    "--c0": "#010208",
    "--c1": "#010209",
    "--c2": "#01020a",
    "--c3": "#01020b",
}
"""The page's own colours, and what stands for each while a plot is drawn."""
LIGHT = {
    "--ink": "#1c2024",
    "--faint": "#5c6670",
    "--best": "#0b62c4",
    "--other": "#6b7680",
    "--floor": "#b3261e",
    "--c0": "#7a3e9d",
    "--c1": "#8a5a00",
    "--c2": "#00695c",
    "--c3": "#a3336b",
}
DARK = {
    "--ink": "#e6e8ea",
    "--faint": "#a3adb7",
    "--best": "#6cb2ff",
    "--other": "#97a3ae",
    "--floor": "#ff8a80",
    "--c0": "#d0a2ef",
    "--c1": "#e3b341",
    "--c2": "#5fd0bf",
    "--c3": "#f29bc4",
}
_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": COLOURS["--ink"],
    "axes.edgecolor": COLOURS["--faint"],
    "axes.labelcolor": COLOURS["--ink"],
    "xtick.color": COLOURS["--faint"],
    "ytick.color": COLOURS["--faint"],
}


NEAR = 1.06
"""What is within this ratio of the best is drawn once more, larger."""
MEET = 1.2
"""Ratio of two lines from which their names do not cover each other."""
LETTER = 11
"""Height of a name there, in points."""


@dataclass(frozen=True)
class Plot:
    """A picture, and what it says for those who do not see it."""

    svg: str
    told: str


def can_plot() -> bool:
    """Whether matplotlib is there."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True


def theme() -> str:
    """The colours as CSS, by what the reader prefers."""
    light, dark = (";".join(f"{k}:{v}" for k, v in of.items()) for of in (LIGHT, DARK))
    return f":root{{{light}}}@media (prefers-color-scheme:dark){{:root{{{dark}}}}}"


def drawn(name: str, size: tuple[float, float], draw: Callable[[Figure], None]) -> str:
    """SVG of a figure; `size` in inches. `name` keeps its ids apart from another's."""
    import matplotlib as mpl
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE | {"svg.hashsalt": name}):
        figure = Figure(figsize=size, layout="constrained")
        FigureCanvasSVG(figure)
        draw(figure)
        out = io.StringIO()
        figure.savefig(out, format="svg", transparent=True, metadata={"Date": None})
    svg = out.getvalue()[out.getvalue().index("<svg") :]
    for variable, colour in COLOURS.items():
        svg = svg.replace(colour, f"var({variable})")
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.S)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'xlink:href="#(?!r\d)', f'xlink:href="#{name}-', svg)
    svg = svg.replace("url(#", f"url(#{name}-")
    return re.sub(r' (width|height)="[\d.]+pt"', "", svg, count=2)


def curve(run: RunData) -> Plot:
    """Every verified candidate and the running best, as speedups over the input kernel; below, the
    same of those near the best."""
    names = list(run.candidates)
    places = [(names.index(c.name), c) for c in run.candidates.values() if c.name in run.times]
    ends = [names.index(record.candidates[-1].name) for record in run.rounds]
    top = 1 / min(run.times.values())

    def draw(figure: Figure) -> None:
        every, near = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
        close = [(place, c) for place, c in places if 1 / run.times[c.name] >= top / NEAR]
        for axes, some in ((every, places), (near, close)):
            _candidates(axes, run, some)
            _best(axes, run, ends)
            for end in ends[:-1]:
                axes.axvline(end + 0.5, color=COLOURS["--faint"], linewidth=0.4, alpha=0.5)
        _lines(every, run)
        _speedups(every, run)
        near.set_ylim(top / NEAR, top * 1.01)
        near.set_ylabel("near the best")
        near.yaxis.set_major_formatter(lambda value, _: f"{value:.4g}x")
        near.set_xlabel("candidates, in the order of rounds and workers")

    return Plot(drawn("curve", (9, 6), draw), _told(run))


def effort(run: RunData) -> Plot | None:
    """The running best against time, and against cost or tokens; None where no round says when it
    ended and no model was asked."""
    axes_of = [
        (label, values)
        for label, values in (
            (
                "minutes of work",
                [r.seconds / 60 if r.seconds is not None else None for r in run.rounds],
            ),
            ("US dollars", _so_far(run, lambda line: line.cost_usd)),
            ("million tokens", _so_far(run, _tokens)),
        )
        if None not in values and any(values)
    ]
    if not axes_of:
        return None

    def draw(figure: Figure) -> None:
        all_axes = figure.subplots(1, len(axes_of), sharey=True, squeeze=False)[0]
        for axes, (label, values) in zip(all_axes, axes_of, strict=True):
            _best(axes, run, values)
            axes.set_xlabel(label)
            axes.set_yscale("log")
        _speedups(all_axes[0], run)

    told = "; ".join(f"{values[-1]:.3g} {label}" for label, values in axes_of)
    told = f"The best after each round; the last one ended after {told}."
    if run.after_rounds_s is not None:
        told += " The final timing and examination came after that."
    return Plot(drawn("effort", (9, 2.8), draw), told)


def small_curve(run: RunData) -> str:
    """The running best by candidates, as a picture of its own."""

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        names = list(run.candidates)
        _best(axes, run, [names.index(record.candidates[-1].name) for record in run.rounds])
        _lines(axes, run)
        axes.set_xlabel("candidates")
        _speedups(axes, run)

    svg = drawn("progress", (5, 2.6), draw)
    start = svg.index(">") + 1
    title = f"<title>{escape(run.record.problem)}</title><style>{theme()}</style>"
    return f"{svg[:start]}{title}{svg[start:]}"


def several(number: int, runs: Sequence[tuple[str, RunData]]) -> Plot:
    """The running best of each run against its candidates; `number` tells plots of a page apart."""

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        styles = ("-", "--", ":", "-.")
        colours = ("--best", "--c0", "--c1", "--c2", "--c3")
        for place, (name, run) in enumerate(runs):
            names = list(run.candidates)
            ends = [names.index(record.candidates[-1].name) for record in run.rounds]
            speedups = [1 / run.times[record.running_best] for record in run.rounds]
            axes.step(
                ends,
                speedups,
                where="post",
                color=COLOURS[colours[place % 5]],
                linestyle=styles[place // 5 % 4],
                label=name,
            )
        axes.set_xlabel("candidates")
        _speedups(axes, runs[0][1])
        axes.legend(frameon=False, fontsize=9)

    ends = "; ".join(
        f"{name} ends at {run.about}{1 / run.times[run.winner.name]:.3g}x over its input kernel"
        for name, run in runs
    )
    return Plot(drawn(f"several{number}", (9, 4), draw), f"{ends}.")


def _candidates(axes: Axes, run: RunData, places: Sequence[tuple[float, Candidate]]) -> None:
    points = [(place, 1 / run.times[c.name], c) for place, c in places]
    ranked = [(place, speedup, run.ranked_time(c)) for place, speedup, c in points]
    bars = [
        (place, speedup * time.time_ms / end)
        for place, speedup, time in ranked
        if time and time.p20_ms and time.p80_ms
        for end in (time.p80_ms, time.p20_ms)
    ]
    axes.vlines(
        [place for place, _ in bars[::2]],
        [end for _, end in bars[::2]],
        [end for _, end in bars[1::2]],
        color=COLOURS["--other"],
        linewidth=0.8,
    )
    marked(axes, points, run)


def marked(axes: Axes, points: Sequence[tuple[float, float, Candidate]], run: RunData) -> None:
    """A mark a candidate, which leads to its card; the winner's is a star."""
    others = [point for point in points if point[2].name != run.winner.name]
    won = [point for point in points if point[2].name == run.winner.name]
    for some, marker, size, colour, label in (
        (others, "o", 18, "--other", "verified"),
        (won, "*", 130, "--best", "the winner"),
    ):
        if some:
            marks = axes.scatter(
                [p[0] for p in some],
                [p[1] for p in some],
                s=size,
                marker=marker,
                color=COLOURS[colour],
                label=label,
                zorder=3,
            )
            marks.set_urls([f"#{p[2].name}" for p in some])


def _best(axes: Axes, run: RunData, places: Sequence[Any]) -> None:
    speedups = [1 / run.times[record.running_best] for record in run.rounds]
    axes.step(
        places, speedups, where="post", color=COLOURS["--best"], linewidth=1.8, label="best so far"
    )


def _lines(axes: Axes, run: RunData) -> None:
    """The baselines and the floor, named at the right edge, one above the other where they meet."""
    known = enumerate(run.baseline_speedups.items())
    lines = [(value, called(name), f"--c{i}") for i, (name, value) in known]
    lines += [(run.floor_speedup, "floor", "--floor")] if run.floor_speedup is not None else []
    below, up = 0.0, 0
    for value, name, colour in sorted(lines):
        up = up + 1 if value < below * MEET else 0
        below = value
        axes.axhline(value, color=COLOURS[colour], linewidth=1, linestyle="--")
        text, at = f" {name} {run.about}{value:.2f}x", ("axes fraction", "data")
        label = axes.annotate(text, (1, value), (0, LETTER * up), at, "offset points")
        label.set(color=COLOURS[colour], va="center", fontsize=9, annotation_clip=False)


def _speedups(axes: Axes, run: RunData) -> None:
    axes.set_yscale("log")
    plain_ticks(axes.yaxis, "x")
    axes.set_ylabel(f"{run.about}speedup over the input kernel")


def plain_ticks(axis: Axis, unit: str) -> None:
    """Ticks of a logarithmic axis as plain numbers."""
    from matplotlib.ticker import LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    near = (1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.8, 2, 2.5, 3, 4, 5, 7)
    axis.set_major_locator(LogLocator(subs=near if high < 4 * low else (1, 2, 5)))
    axis.set_major_formatter(lambda value, _: f"{value:g}{unit}")
    axis.set_minor_formatter(NullFormatter())


def _told(run: RunData) -> str:
    steps = ", ".join(f"{c.name} {run.about}{1 / run.times[c.name]:.2f}x" for c in run.bests[1:])
    lines = [f"{called(n)} {run.about}{v:.2f}x" for n, v in run.baseline_speedups.items()]
    if run.floor_speedup is not None:
        lines.append(f"the floor {run.about}{run.floor_speedup:.2f}x")
    against = f" Lines: {', '.join(lines)}." if lines else ""
    return (
        "Speedup over the input kernel, by ratios each taken in one visit (a stay on one GPU)"
        f"{', of confirmed wins as the confirmation measured it' if run.in_turns else ''}, on a "
        "logarithmic scale; bars go from the "
        f"20th to the 80th percentile. The best so far: {steps or 'the input kernel'}.{against}"
    )


def _so_far(run: RunData, amount: Callable[[Any], float | None]) -> list[float | None]:
    """What was spent after each round; None where a call so far has no such number."""
    sums: list[float | None] = []
    for record in run.rounds:
        amounts = [amount(line) for line in run.ledger if line.round <= record.round]
        known = [value for value in amounts if value is not None]
        sums.append(sum(known) if len(known) == len(amounts) else None)
    return sums


def _tokens(line: Any) -> float | None:
    if line.tokens_in is None or line.tokens_out is None:
        return None
    return float(line.tokens_in + line.tokens_out) / 1e6

"""Candidates an hour by lanes, and what the lanes do, as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.lane_study.runs import World
from tools.lane_study.study import LANES
from tools.lane_study.tables import WORLDS, Case, Study, by_lanes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CURVES = {"one problem, 4 workers": 4, "one problem, 8 workers": 8, "suite": 0}
SHOWN = {"one problem, 8 workers": 8, "suite": 0}
COLOURS = ("#c0392b", "#2471a3", "#1e8449")
EVERYTHING = {"busy": "#1e8449", "start": "#7d8b8c", "compilation": "#b9770e", "model": "#2471a3"}
EVERYTHING |= {"round's end": "#c0392b", "no job": "#d5d8dc"}


def draw(study: Study, file: Path) -> None:
    """Write the picture: candidates an hour and efficiency by lanes, and what the lanes do with one
    problem and with a suite; a column a world. Its name says whether it is SVG or PNG."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    style: dict[Any, Any] = {"svg.hashsalt": "lanes", "svg.fonttype": "none", "font.size": 9}
    with mpl.rc_context(style):
        figure = Figure(figsize=(9, 9), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(4, len(WORLDS), squeeze=False)
        for column, (name, world) in enumerate(WORLDS.items()):
            axes[0, column].set_title(name)
            _curves(axes[0, column], axes[1, column], study, world)
            for axis, (label, workers) in zip(axes[2:, column], SHOWN.items(), strict=True):
                _bars(axis, study, by_lanes(world, workers))
                axis.set(ylabel=f"{label}:\nlanes' time, %", ylim=(0, 100))
            axes[-1, column].set_xlabel("lanes")
        figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
        figure.legend(*axes[-1, 0].get_legend_handles_labels(), loc="outside lower center", ncols=6)
        figure.savefig(file, metadata={"Date": None} if file.suffix == ".svg" else None)


def _curves(rate: Axes, efficiency: Axes, study: Study, world: World) -> None:
    for (label, workers), colour in zip(CURVES.items(), COLOURS, strict=True):
        cases = by_lanes(world, workers)
        found = [study.found[case].an_hour for case in cases]
        rate.plot(LANES, found, "o-", color=colour, label=label)
        shares = [100 * study.speedup(case) / case.lanes for case in cases]
        efficiency.plot(LANES, shares, "o-", color=colour)
    rate.set(yscale="log", ylabel="candidates an hour")
    efficiency.axhline(90, color="#7d8b8c", linewidth=0.8, linestyle=":")
    efficiency.set(ylabel="efficiency, %", ylim=(0, 105))
    for axis in (rate, efficiency):
        axis.set_xscale("log")
        axis.set_xticks(LANES, [str(lanes) for lanes in LANES])
        axis.xaxis.minorticks_off()
        axis.grid(color="#eee")


def _bars(axis: Axes, study: Study, cases: Sequence[Case]) -> None:
    found = [study.found[case] for case in cases]
    bottom = [0.0] * len(cases)
    for what, colour in EVERYTHING.items():
        shares = [one.busy if what == "busy" else one.waits().get(what, 0.0) for one in found]
        parts = [100 * share for share in shares]
        axis.bar(range(len(cases)), parts, bottom=bottom, color=colour, label=what)
        bottom = [low + part for low, part in zip(bottom, parts, strict=True)]
    axis.set_xticks(range(len(cases)), [str(case.lanes) for case in cases])

"""The roofline of a run: its kernels under what the GPU can do."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from beamsearch.records.candidate import Candidate
from beamsearch.report.plots import COLOURS, Plot, drawn, marked, plain_ticks
from beamsearch.report.run_data import INPUT, RunData

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from kernel_profiling.profile import Floor

APART = 0.06
"""Of the height, from one name at the edge to the next."""


def roofline(run: RunData) -> Plot | None:
    """Every verified kernel under what the GPU can do; None without a floor.

    The work is the problem's least FLOPs; where it has none, its least bytes.
    """
    floor = run.record.floor
    if floor is None or not floor.least_bytes:
        return None
    work = floor.flops or floor.least_bytes
    scale = 1e12 if floor.flops else 1e9
    what = "FLOPs" if floor.flops else "needed bytes"
    unit = "TFLOP/s" if floor.flops else "GB/s of needed bytes"
    rates = {name: work / run.seconds(name) / scale for name in run.times}
    traffic = {name: p.traffic.get("dram") for name in rates if (p := run.profile(name))}
    reach = {name: work / moved for name, moved in traffic.items() if moved}

    def draw(figure: Figure) -> None:
        axes = figure.add_subplot()
        _roof(axes, floor, work, scale, list(reach.values()))
        marked(axes, [(x, rates[name], run.candidates[name]) for name, x in reach.items()], run)
        rug = [rate for name, rate in rates.items() if name not in reach]
        if rug:
            axes.plot(
                [0.006] * len(rug),
                rug,
                linestyle="",
                marker="_",
                markersize=9,
                label="not profiled",
                color=COLOURS["--other"],
                transform=axes.get_yaxis_transform(),
            )
        axes.set_xscale("log")
        axes.set_yscale("log")
        places = ((reach.get(c.name), c) for c in _telling(run))
        _named(axes, [(x, rates[c.name], c.name) for x, c in places if x])
        plain_ticks(axes.xaxis, "")
        plain_ticks(axes.yaxis, "")
        axes.set_xlabel(f"{what} a byte that device memory moves")
        axes.set_ylabel(f"{run.about}{unit}")
        axes.legend(frameon=False, fontsize=9)

    told = (
        f"{len(reach)} of {len(rates)} verified kernels have a profile and stand under the roof, "
        "the input kernel and the bests with their names, which the others show when they are "
        "pointed at; kernels without a profile are ticks at the left edge. Rates are the "
        f"problem's own least {what} over a "
        "kernel's time, not what its instructions did, which may be more. The winner does "
        f"{run.about}"
        f"{rates.get(run.winner.name, 0):.4g} {unit}; at the floor it would be "
        f"{run.about}{work / floor.time_ms * 1e3 / scale:.4g}."
    )
    return Plot(drawn("roofline", (9, 4.2), draw), told)


def _telling(run: RunData) -> list[Candidate]:
    """The kernels that are named: the winner, the input kernel, and each best between them."""
    return list({c.name: c for c in (run.winner, run.candidates[INPUT], *run.bests)}.values())


def _named(axes: Axes, points: Sequence[tuple[float, float, str]]) -> None:
    """The points' names at the right edge, each with a line to its own."""
    low, high = map(math.log, axes.get_ylim())
    place = 0.0
    for x, y, name in sorted(points, key=lambda point: point[1]):
        place = max(place + APART, (math.log(y) - low) / (high - low))
        axes.annotate(
            name,
            (x, y),
            (1.01, place),
            textcoords="axes fraction",
            fontsize=8,
            va="center",
            arrowprops={"arrowstyle": "-", "color": COLOURS["--faint"], "linewidth": 0.5},
        )


def _roof(axes: Axes, floor: Floor, work: float, scale: float, reach: Sequence[float]) -> None:
    """What the GPU can do at most, and the floor on it. `reach`: where kernels stand."""
    least = work / floor.least_bytes
    bandwidth = floor.bandwidth_gb_s * 1e9 / scale
    top = floor.flops_rate_tflop_s if floor.flops else float("inf")
    low, high = min([*reach, least]) / 2, max([*reach, least]) * 2
    steps = [low * (high / low) ** (i / 100) for i in range(101)]
    colour = COLOURS["--floor"]
    axes.plot(steps, [min(top, x * bandwidth) for x in steps], color=colour, label="the roof")
    place = [least], [work / floor.time_ms * 1e3 / scale]
    axes.plot(*place, marker="D", linestyle="", color=colour, label="the floor")

"""The comparison as a picture: SVG written by hand, one panel a world."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tools.simulation.compare import A_ROUND, Curve

COLOURS = {
    "beam": "#c0392b",
    "greedy": "#2471a3",
    "best-of-n": "#7d8b8c",
    "tree": "#1e8449",
    "none fresh": "#b7950b",
}
WIDTH, HEIGHT = 250, 230
LEFT, TOP, BELOW = 46, 44, 40


def chart(curves: Sequence[Curve]) -> str:
    """Best time over the floor against candidates, with a band of one standard error."""
    worlds = list(dict.fromkeys(curve.world for curve in curves))
    panels = []
    for number, world in enumerate(worlds):
        own = [curve for curve in curves if curve.world == world]
        panels.append(f'<g transform="translate({number * (WIDTH + LEFT)},0)">{_panel(own)}</g>')
    width = len(worlds) * (WIDTH + LEFT) + 20
    height = TOP + HEIGHT + BELOW
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="11">'
        f'<rect width="{width}" height="{height}" fill="white"/>{"".join(panels)}</svg>\n'
    )


def _panel(curves: Sequence[Curve]) -> str:
    """One world; the first round is the left edge, since before it all are at the first kernel."""
    last = len(curves[0].best) - 1
    values = [estimate.mean for curve in curves for estimate in curve.best[1:]]
    low, high = math.log(min(values)) - 0.03, math.log(max(values)) + 0.03

    def x(done: int) -> float:
        return LEFT + (done - 1) / (last - 1) * WIDTH

    def y(value: float) -> float:
        return TOP + (high - math.log(value)) / (high - low) * HEIGHT

    parts = [f'<text x="{LEFT}" y="{TOP - 26}" font-weight="bold">{curves[0].world}</text>']
    parts += [
        f'<path d="M{LEFT} {y(tick):.1f}h{WIDTH}" stroke="#ddd"/>'
        f'<text x="{LEFT - 5}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:.2f}</text>'
        for tick in _ticks(math.exp(low), math.exp(high))
    ]
    parts += [
        f'<text x="{x(done):.1f}" y="{TOP + HEIGHT + 16}" text-anchor="middle">'
        f"{done * A_ROUND}</text>"
        for done in range(1, last + 1)
        if done in (1, 2, 4) or done % 8 == 0
    ]
    parts.append(
        f'<text x="{LEFT + WIDTH / 2}" y="{TOP + HEIGHT + 32}" text-anchor="middle">'
        "candidates → best time / floor</text>"
    )
    for number, curve in enumerate(curves):
        colour = COLOURS.get(curve.strategy, "black")
        known = list(enumerate(curve.best))[1:]
        upper = [f"{x(n):.1f},{y(e.mean + e.error):.1f}" for n, e in known]
        lower = [f"{x(n):.1f},{y(e.mean - e.error):.1f}" for n, e in known]
        line = [f"{x(n):.1f},{y(e.mean):.1f}" for n, e in known]
        band = " ".join([*upper, *lower[::-1]])
        parts += [
            f'<polygon points="{band}" fill="{colour}" opacity="0.15"/>',
            f'<polyline points="{" ".join(line)}" fill="none" stroke="{colour}" stroke-width="2"/>',
            f'<text x="{LEFT + number * WIDTH / len(curves):.0f}" y="{TOP - 10}" fill="{colour}">'
            f"{curve.strategy}</text>",
        ]
    return "".join(parts)


def _ticks(low: float, high: float) -> list[float]:
    """Round values between two: steps of 0.05, wider where that would be more than seven."""
    step = next(s for s in (0.05, 0.1, 0.2, 0.5, 1.0, math.inf) if (high - low) / s <= 7)
    first = math.ceil(low / step)
    return [n * step for n in range(first, int(high / step) + 1)] if step < math.inf else []

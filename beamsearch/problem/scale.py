"""A problem at a part of its size, for a smaller GPU: `--scale 0.25`."""

from __future__ import annotations

import functools
from dataclasses import replace

from beamsearch.errors import ProblemError
from beamsearch.problem.problem import Problem
from beamsearch.problem.shrink import Extent, integer_sizes, measure
from beamsearch.problem.sizes import rewritten

ALIGNED = 16
"""A size that is a multiple of a power of two stays one of it, up to this: the least side of a
block of `tl.dot`, and of two bytes each a sector of 32 bytes, the least that a GPU reads."""
LEAST = 4
"""Sizes up to this stay: as in `shrink`, they are kernel sizes, strides and the like."""
CLOSE = 1.2
"""The problem may be so many times as large as asked: what does not shrink with a size, such as
biases, is no reason to cut another one."""


@functools.lru_cache(maxsize=64)
def at_scale(problem: Problem, factor: float | None) -> Problem:
    """The problem with its largest sizes multiplied by the factor, one after the other, until its
    inputs, parameters and outputs together are about that share of what they were; none leaves it.

    A size is multiplied where the reference runs with it and gets smaller; else together with those
    that have the same value. Its source says the new numbers. Raises ProblemError where the factor
    is none, or no sizes make it so small.
    """
    if factor is None:
        return problem
    if not 0 < factor <= 1:
        raise ProblemError(f"--scale {factor:g}: give a part of the size, such as 0.5 or 0.25")
    original, whole = integer_sizes(problem), measure(problem)
    if whole is None:
        raise ProblemError(f"{problem.name}: the reference does not run at its own shapes")
    most = CLOSE * factor * _all(whole)
    sizes, extent = dict(original), whole
    long = [name for name, value in original.items() if value > LEAST]
    for name in sorted(long, key=lambda name: -original[name]):
        if _all(extent) <= most:
            break
        alike = [other for other in long if original[other] == original[name]]
        for names in ([name], alike):
            changed = {other: scaled_size(original[other], factor) for other in names}
            trial = measure(replace(problem, sizes=sizes | changed))
            if sizes[name] == original[name] and trial and _all(trial) < _all(extent):
                sizes, extent = sizes | changed, trial
    if _all(extent) > most:
        raise ProblemError(
            f"{problem.name} cannot be scaled to {factor:g}: at the sizes that its reference takes "
            f"it has {_all(extent) / _all(whole):.2g} of its elements; give a larger --scale"
        )
    new = {name: size for name, size in sizes.items() if size != original[name]}
    told = ", ".join(f"{name} {original[name]} to {size}" for name, size in new.items())
    source = rewritten(problem.source, new)
    return replace(problem, source=source, scaled=f"{factor:g}: {told}" if told else "")


def scaled_size(size: int, factor: float) -> int:
    """The multiple nearest to size x factor of the power of two that divides the size, up to
    `ALIGNED`; at least that power, and above `LEAST` in any case."""
    step = min(size & -size, ALIGNED)
    nearest = int(size * factor / step + 0.5) * step
    return min(size, max(step, nearest, LEAST))


def _all(extent: Extent) -> int:
    return extent.elements + extent.parameters

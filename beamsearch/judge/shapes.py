"""Other shapes that a problem can take: what tells a general kernel from a specialised one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from beamsearch.errors import ProblemError
from beamsearch.problem import Problem, count_elements, integer_sizes, shrink

ELEMENTS = 32_000
"""Most elements of inputs and outputs: five times the smoke shapes, still seconds interpreted."""
LONG = 1031
"""A prime just past 1024, so that no power-of-two block up to it covers or divides it."""


def other_shapes(problem: Problem) -> Iterator[tuple[str, Problem]]:
    """Variations of a problem's sizes that its reference takes, each with a name.

    Only sizes that `shrink` reduces are varied, so that kernel sizes, strides and groups stay.
    Nothing where the problem cannot be shrunk.
    """
    try:
        small = shrink(problem)
    except ProblemError:
        return
    original = integer_sizes(problem)
    free = [name for name, value in small.sizes.items() if value != original[name]]
    seen = [dict(small.sizes)]
    for label, wanted in (
        ("prime sizes", {name: next_prime(small.sizes[name]) for name in free}),
        ("even sizes", {name: small.sizes[name] + 2 - small.sizes[name] % 2 for name in free}),
        ("sizes of one", dict.fromkeys(free, 1)),
        *((f"a long {name}", dict.fromkeys(free, 1) | {name: LONG}) for name in reversed(free)),
    ):
        varied = as_far_as_it_runs(small, wanted)
        if varied.sizes not in seen:
            seen.append(dict(varied.sizes))
            yield label, varied
            if label.startswith("a long"):
                return


def as_far_as_it_runs(small: Problem, wanted: dict[str, int]) -> Problem:
    """The sizes changed one by one, the smallest first, where the reference still runs within the
    budget of elements; a smaller size is made as small as it runs."""
    sizes = dict(small.sizes)
    for name, value in sorted(wanted.items(), key=lambda item: item[1]):
        for trial in range(value, max(value + 1, sizes[name])):
            elements = count_elements(replace(small, sizes={**sizes, name: trial}))
            if elements is not None and elements <= ELEMENTS:
                sizes[name] = trial
                break
    return replace(small, sizes=sizes)


def next_prime(number: int) -> int:
    """The first prime above a number."""
    number += 1
    while number < 2 or any(number % factor == 0 for factor in range(2, int(number**0.5) + 1)):
        number += 1
    return number

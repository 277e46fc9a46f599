"""Shapes on which a kernel must be right: none flat, each dimension long in turn, one aligned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import combinations, count, takewhile
from math import prod

from beamsearch.errors import ProblemError
from beamsearch.problem.input_values import DISTRIBUTIONS
from beamsearch.problem.problem import Problem
from beamsearch.problem.shrink import count_elements, integer_sizes, shrink

MEDIUM_ELEMENTS = 8_000
"""Most elements of the medium shape: as the smoke shapes, so that any kernel runs on it."""
ALIGNED_ELEMENTS = 32_000
"""Most elements of the aligned shape; several blocks of most kernels in each row."""
LARGE_ELEMENTS = (200_000, 50_000)
"""The same of a shape with several blocks in all dimensions at once, and of what stands in for it
where that takes too long."""
LITTLE_ELEMENTS = 32_000
"""The same of the little shape, five times the smoke shapes."""
LONG_ELEMENTS = 5_000_000
"""Most elements of a shape with one long dimension: its oracle takes a tenth of a second."""
BLOCKS = 2.4
"""Blocks in a dimension that is long for the kernel: two whole ones, and a part that no rounding of
a sum hides."""
LEAST_LONG = 100
"""A long dimension, for a kernel without blocks to speak of."""
SHORTEST = 3
"""What a dimension is at least that stands in for one that is too long to interpret."""
MOST_PAIRS = 3
"""Pairs of dimensions that are long together: those of the most tiles."""
PARTS = (2, 4, 8)
"""Parts of its true size that stand in for such a dimension."""
STEP = 4
"""A dimension that takes too long at one size is tried at a quarter of it."""


@dataclass(frozen=True)
class DecidingShape:
    """One shape; where it takes too long to interpret, the largest of `problems` that does not."""

    label: str
    problems: tuple[Problem, ...]
    """The largest first."""
    sets: int
    """Input sets, the rising one first."""


@dataclass(frozen=True)
class Deciding:
    """The shapes of one problem that decide, for kernels of any block."""

    original: Mapping[str, int]
    medium: Problem
    little: Problem
    aligned: Problem
    large: tuple[Problem, ...]
    free: tuple[str, ...]
    """Names of the sizes that are varied."""

    def first(self) -> list[DecidingShape]:
        """Those that take no time; the kernel's largest block is known after them."""
        return [
            DecidingShape("no dimension flat", (self.medium, self.little), len(DISTRIBUTIONS)),
            DecidingShape("aligned sizes", (self.aligned,), 1),
            DecidingShape("no dimension small", self.large, 1),
        ]

    def long(self, block: int) -> list[DecidingShape]:
        """Each dimension long in turn: a little over two blocks, then at its true size."""
        length = max(LEAST_LONG, int(block * BLOCKS)) | 1
        within = [name for name in self.free if length < self.original[name]]
        beyond = [name for name in self.free if name not in within]
        return [
            *(self._long(f"over two blocks of {name}", name, [length], 2) for name in within),
            *(self._at_true(name, 2, SHORTEST - 1) for name in beyond),
            *(self._at_true(name, 1, length) for name in within),
        ]

    def tiled(self) -> list[DecidingShape]:
        """More tiles than a GPU has multiprocessors, for a kernel whose programs take one after the
        other: two dimensions at their true sizes, or at as large a part of them as time allows."""
        pairs = sorted(combinations(self.free, 2), key=self._area, reverse=True)
        found = []
        for pair in pairs[:MOST_PAIRS]:
            sizes = [{name: self.original[name] // part | 1 for name in pair} for part in PARTS]
            label = f"long {' and '.join(pair)}"
            found.append(self._around(label, [{n: self.original[n] for n in pair}, *sizes], 1))
        return found

    def _area(self, pair: tuple[str, str]) -> int:
        return prod(self.original[name] for name in pair)

    def _at_true(self, name: str, sets: int, least: int) -> DecidingShape:
        """`least`: what a shorter dimension that stands in for the true one is longer than."""
        size = self.original[name]
        shorter = takewhile(lambda n: n > least, (size // STEP**n | 1 for n in count(1)))
        small = [SHORTEST] if least < SHORTEST < size else []
        return self._long(f"long {name}", name, [size, *shorter, *small], sets)

    def _long(self, label: str, name: str, lengths: Iterable[int], sets: int) -> DecidingShape:
        return self._around(label, [{name: length} for length in lengths], sets)

    def _around(self, label: str, sizes: Iterable[Mapping[str, int]], sets: int) -> DecidingShape:
        """These sizes, the others medium or little."""
        found: list[Problem] = []
        for given in sizes:
            for around in (self.medium, self.little):
                problem = replace(around, sizes={**around.sizes, **given})
                elements = count_elements(problem)
                if elements is not None and elements <= LONG_ELEMENTS and problem not in found:
                    found.append(problem)
        return DecidingShape(label, tuple(found), sets)


def deciding(problem: Problem) -> Deciding:
    """The problem's deciding shapes. Raises ProblemError where it cannot be shrunk."""
    small = shrink(problem)
    original = integer_sizes(problem)
    free = tuple(name for name, value in small.sizes.items() if value != original[name])
    little = _as_far_as_it_runs(small, dict.fromkeys(free, 2))
    return Deciding(
        original=original,
        medium=_medium(little, free),
        little=little,
        aligned=_aligned(problem, original),
        large=tuple(_uneven(problem, budget) for budget in LARGE_ELEMENTS),
        free=free,
    )


def _as_far_as_it_runs(small: Problem, wanted: dict[str, int]) -> Problem:
    """The sizes changed one by one, the smallest first, where the reference still runs within the
    budget of elements; a smaller size is made as small as it runs."""
    sizes = dict(small.sizes)
    for name, value in sorted(wanted.items(), key=lambda item: item[1]):
        for trial in range(value, max(value + 1, sizes[name])):
            elements = count_elements(replace(small, sizes={**sizes, name: trial}))
            if elements is not None and elements <= LITTLE_ELEMENTS:
                sizes[name] = trial
                break
    return replace(small, sizes=sizes)


def _medium(little: Problem, free: tuple[str, ...]) -> Problem:
    """Every free size from 3 up, none a power of two, and different as far as elements allow."""
    sizes = {name: _odd(value) for name, value in little.sizes.items() if name in free}
    medium = replace(little, sizes={**little.sizes, **sizes})
    if count_elements(medium) is None:
        return little
    used: set[int] = set()
    for name in sorted(free, key=lambda name: sizes[name]):
        size = next(n for n in count(sizes[name]) if n not in used and n & (n - 1))
        trial = replace(medium, sizes={**medium.sizes, name: size})
        elements = count_elements(trial)
        if elements is not None and elements <= MEDIUM_ELEMENTS:
            medium = trial
        used.add(medium.sizes[name])
    return medium


def _odd(size: int) -> int:
    return max(3, size | 1)


def _aligned(problem: Problem, original: Mapping[str, int]) -> Problem:
    """Sizes that divide the true ones where they can, for kernels that take no others."""
    try:
        small = shrink(problem, ALIGNED_ELEMENTS)
    except ProblemError:
        return problem
    sizes = {
        name: value if value == original[name] else _divisor(value, original[name])
        for name, value in small.sizes.items()
    }
    aligned = replace(small, sizes=sizes)
    return aligned if count_elements(aligned) is not None else small


def _uneven(problem: Problem, budget: int) -> Problem:
    """Shrunk to this many elements, and of sizes that are alike some made shorter."""
    large = shrink(problem, budget)
    original = integer_sizes(problem)
    used: set[int] = set()
    for name, size in large.sizes.items():
        if size != original[name]:
            shorter = size
            while shorter in used and shorter > 8:
                shorter = shorter * 2 // 3 | 1
            trial = replace(large, sizes={**large.sizes, name: shorter})
            large = trial if count_elements(trial) is not None else large
            used.add(large.sizes[name])
    return large


def _divisor(value: int, whole: int) -> int:
    """A size as large as this one, or one larger, that divides the whole; at least 2."""
    value = max(2, value)
    return value + 1 if whole % value and not whole % (value + 1) else value

"""Shapes on which a kernel must be right: none flat, each dimension long in turn, one aligned."""

import functools
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import combinations, count, takewhile
from math import inf

from beamsearch.errors import ProblemError
from beamsearch.problem.input_values import DISTRIBUTIONS
from beamsearch.problem.instance import instantiate
from beamsearch.problem.outputs import outputs_of
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

    def tiled(self) -> list[DecidingShape]:
        """More tiles than a GPU has multiprocessors, for a kernel whose programs take one after the
        other: two dimensions at their true sizes, or at as large a part of them as time allows."""
        true = self.original
        pairs = combinations(self.free, 2)
        largest = sorted(pairs, key=lambda pair: true[pair[0]] * true[pair[1]], reverse=True)
        found = []
        for pair in largest[:MOST_PAIRS]:
            sizes = [{name: true[name] // part | 1 for name in pair} for part in PARTS]
            label = f"long {' and '.join(pair)}"
            found.append(self.around(label, [{name: true[name] for name in pair}, *sizes], 1))
        return found

    def at_true(self, name: str, sets: int, least: int) -> DecidingShape:
        """`least`: what a shorter dimension that stands in for the true one is longer than."""
        size = self.original[name]
        shorter = takewhile(lambda n: n > least, (size // STEP**n | 1 for n in count(1)))
        small = [SHORTEST] if least < SHORTEST < size else []
        return self.around(f"long {name}", [{name: n} for n in (size, *shorter, *small)], sets)

    def around(self, label: str, sizes: Iterable[Mapping[str, int]], sets: int) -> DecidingShape:
        """These sizes, the others medium or little."""
        found: dict[Problem, None] = {}
        for given in sizes:
            for around in (self.medium, self.little):
                if problem := _resized(around, given, LONG_ELEMENTS):
                    found[problem] = None
        return DecidingShape(label, tuple(found), sets)


@functools.lru_cache(maxsize=64)
def deciding(problem: Problem) -> Deciding:
    """The problem's deciding shapes. Raises ProblemError where it cannot be shrunk."""
    small = shrink(problem)
    original = integer_sizes(problem)
    free = tuple(name for name, value in small.sizes.items() if value != original.get(name, value))
    little = small
    for name in free:
        lengths = range(2, max(3, small.sizes[name]))
        trials = (_resized(little, {name: length}, LITTLE_ELEMENTS) for length in lengths)
        little = next((trial for trial in trials if trial), little)
    return Deciding(
        original=original,
        medium=_medium(little, free),
        little=little,
        aligned=_aligned(problem, original),
        large=tuple(_uneven(problem, original, most) for most in LARGE_ELEMENTS),
        free=free,
    )


@functools.lru_cache(maxsize=64)
def long_shapes(problem: Problem, block: int) -> list[DecidingShape]:
    """Those with one long dimension, for a kernel of such blocks: each in turn a little over two of
    them, then at its true size."""
    found, length = deciding(problem), max(LEAST_LONG, int(block * BLOCKS)) | 1
    within = [name for name in found.free if length < found.original[name]]
    beyond = [name for name in found.free if name not in within]
    return [
        *(found.around(f"over two blocks of {n}", [{n: length}], 2) for n in within),
        *(found.at_true(name, 2, SHORTEST - 1) for name in beyond),
        *(found.at_true(name, 1, length) for name in within),
    ]


def is_regular(problem: Problem, shape: Problem) -> bool:
    """Whether the output has an input's shape there if it has it as a rule: where half of the
    columns are turned, an odd number of them is no shape of the problem."""
    rule = _rule(problem)
    return not any(rule) or all(
        has or not is_rule for is_rule, has in zip(rule, _kind_of(shape), strict=True)
    )


@functools.lru_cache(maxsize=64)
def _rule(problem: Problem) -> tuple[bool, ...]:
    """Which inputs have the output's shape as a rule; empty where there is none."""
    kinds = [_kind_of(p) for item in deciding(problem).first() for p in item.problems]
    common, times = Counter(kinds).most_common(1)[0]
    return common if _kind_of(problem) == common and 2 * times > len(kinds) else ()


def _kind_of(problem: Problem) -> tuple[bool, ...]:
    instance = instantiate(problem, "meta")
    output = outputs_of(instance.reference())[0]
    return tuple(getattr(value, "shape", None) == output.shape for value in instance.inputs)


def _resized(problem: Problem, sizes: Mapping[str, int], most: float = inf) -> Problem | None:
    """The problem at these sizes; none where the reference does not run there, or has more elements
    than the most."""
    trial = replace(problem, sizes={**problem.sizes, **sizes})
    elements = count_elements(trial)
    return trial if elements is not None and elements <= most else None


def _medium(little: Problem, free: tuple[str, ...]) -> Problem:
    """Every free size from 3 up, none a power of two, and different as far as elements allow. Where
    that is no shape, as of halves that are rotated, as many as can be."""
    sizes = {name: max(3, little.sizes[name] | 1) for name in free}
    medium = _resized(little, sizes)
    if medium is None:
        medium = little
        for name, size in sizes.items():
            trials = (_resized(medium, {name: larger}) for larger in (size, size + 1, size + 3))
            medium = next((trial for trial in trials if trial), medium)
    used: set[int] = set()
    for name in sorted(free, key=lambda name: sizes[name]):
        size = next(n for n in count(sizes[name]) if n not in used and n & (n - 1))
        medium = _resized(medium, {name: size}, MEDIUM_ELEMENTS) or medium
        used.add(medium.sizes[name])
    return medium


def _aligned(problem: Problem, original: Mapping[str, int]) -> Problem:
    """Sizes that divide the true ones where they can, for kernels that take no others: as large as
    shrunk ones, or one larger; at least 2."""
    try:
        small = shrink(problem, ALIGNED_ELEMENTS)
    except ProblemError:
        return problem
    sizes = dict(small.sizes)
    for name, whole in original.items():
        if sizes[name] != whole:
            size = max(2, sizes[name])
            sizes[name] = size + 1 if whole % size and not whole % (size + 1) else size
    return _resized(small, sizes) or small


def _uneven(problem: Problem, original: Mapping[str, int], most: int) -> Problem:
    """Shrunk to this many elements, and of sizes that are alike some made shorter."""
    large = shrink(problem, most)
    used: set[int] = set()
    for name, size in large.sizes.items():
        if size != original.get(name, size):
            shorter = size
            while shorter in used and shorter > 8:
                shorter = shorter * 2 // 3 | 1
            large = _resized(large, {name: shorter}) or large
            used.add(large.sizes[name])
    return large

"""A problem at small sizes, for the interpreter."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from beamsearch.errors import BeamsearchError, ProblemError, UsageError
from beamsearch.problem.instance import instantiate
from beamsearch.problem.problem import Problem, load_module
from beamsearch.problem.sizes import SMALL, SMALL_MAKERS, sizes_of
from kernel_profiling.errors import one_line
from kernel_profiling.syntax import parse

SMOKE_ELEMENTS = 6_000
"""Elements of inputs and outputs a shrunk problem may have. The interpreter takes about 10 ms for a
program with a few dozen loads, and a kernel may use a program for each row of the output: at this
size that is some dozens of programs, and the interpreter answers in about a second."""

PARAMETERS = 16
"""Parameters that a shrunk problem may have for each element of its budget, where its sizes allow:
they are read once, and no program is added for them."""
MOST_OFFERED = 5 * SMOKE_ELEMENTS
"""Elements at the small sizes that a problem offers: the interpreter takes some seconds."""
LAST = 1000
"""Rank of what is tried once nothing else is left: no size is halved so often."""


def shrink(problem: Problem, budget: int = SMOKE_ELEMENTS) -> Problem:
    """The same problem at small sizes: those that it offers itself, else its whole numbers halved
    in turn down to the budget. For a larger budget than the least its own are the last resort.

    All sizes shrink alike, the smallest first, so that batches end near 1 while rows and images
    stay long enough to have an inside and an edge. A size is halved only where the reference still
    runs and gets smaller, so that kernel sizes, strides and groups stay as they are; two together
    where none can be by itself. Sizes that only parameters have are halved too, as far as they can
    be. Where that does not reach the budget, no size ends at 1, and what cannot be halved is cut by
    a quarter: statistics over a batch of one do not exist, and an image may need some length. What
    was made smaller is made odd where it can be, to exercise masks and remainders. Raises
    ProblemError where the problem has no sizes that reach the budget, UsageError where those that
    it offers do not run.
    """
    found = _shrunk(problem, budget)
    if isinstance(found, BeamsearchError):
        raise type(found)(str(found))
    return found


@functools.lru_cache(maxsize=64)
def _shrunk(problem: Problem, budget: int) -> Problem | BeamsearchError:
    """What `shrink` gives, or raises: it takes seconds to see that a large model has no small
    sizes."""
    try:
        return _found(problem, budget)
    except (ProblemError, UsageError) as error:
        return error


def _found(problem: Problem, budget: int) -> Problem:
    own = _offered(problem)
    if own is not None and budget <= SMOKE_ELEMENTS:
        return own
    reached = []
    for least, parts in ((1, (2,)), (2, (2, 4 / 3))):
        small, extent = _reduced(problem, budget, least, parts)
        if extent.elements <= budget:
            return _odd(problem, small, extent, budget)
        reached.append(extent.elements)
    if own is not None:
        return own
    raise ProblemError(
        f"{problem.name}: it has {min(reached)} elements at the least sizes its "
        f"reference takes, where {budget} can be checked without a GPU. Give each of its "
        "sizes a name of its own at the module's level, from which everything else follows, or "
        f"small ones that run as `{SMALL} = {{...}}`."
    )


def _reduced(
    problem: Problem, budget: int, least: int, parts: Sequence[float]
) -> tuple[Problem, Extent]:
    """The problem with sizes divided by these parts in turn, as far as the budget asks for it or as
    they can be; none below `least`. Raises ProblemError where the reference does not run."""
    sizes = integer_sizes(problem)
    long = [name for name, value in sizes.items() if value > 4]
    ways = {(name,): 0 for name in long} | dict.fromkeys(combinations(long, 2), LAST)
    cuts = {
        (names, part): rank + LAST * LAST * number
        for number, part in enumerate(parts)
        for names, rank in ways.items()
    }
    extent = measure(problem)
    if extent is None:
        raise ProblemError(f"{problem.name}: the reference does not run at its own shapes")
    while cuts and (extent.elements > budget or extent.parameters > PARAMETERS * budget):
        names, part = min(cuts, key=lambda key: (cuts[key], *(sizes[name] for name in key[0])))
        trial = sizes | {name: int(sizes[name] / part) for name in names}
        is_whole = all(trial[name] >= least for name in names)
        smaller = measure(replace(problem, sizes=trial)) if is_whole else None
        if smaller is None or not smaller.is_within(extent, budget):
            del cuts[names, part]
            continue
        sizes, extent = trial, smaller
        cuts[names, part] += 1
    return replace(problem, sizes=sizes), extent


def _odd(problem: Problem, small: Problem, extent: Extent, budget: int) -> Problem:
    """What was made smaller, odd where it can be."""
    original, sizes = integer_sizes(problem), dict(small.sizes)
    for name, value in small.sizes.items():
        trial = {**sizes, name: value - 1}
        if value != original[name] and value > 4 and value % 2 == 0:
            smaller = measure(replace(problem, sizes=trial))
            if smaller is not None and smaller.is_within(extent, budget):
                sizes, extent = trial, smaller
    return replace(problem, sizes=sizes)


def _offered(problem: Problem) -> Problem | None:
    """The problem at the small sizes that it offers itself; none where it offers none. Raises
    UsageError where they are no sizes of it, do not run, or are not small."""
    module = load_module(replace(problem, sizes={}))
    original, given = integer_sizes(problem), getattr(module, SMALL, None)
    if hasattr(module, SMALL_MAKERS[0]):
        what, sizes = f"{SMALL_MAKERS[0]}()", {**original, SMALL_MAKERS[0]: 1}
    elif given is None:
        return None
    else:
        what = SMALL
        strange = (
            [name for name in given if name not in original] if isinstance(given, dict) else given
        )
        if (
            strange
            or not given
            or not all(type(size) is int and size > 0 for size in given.values())
        ):
            raise UsageError(
                f"{problem.name}: {SMALL} = {given!r} is no table of whole numbers for its sizes; "
                f"they are {', '.join(original)}"
            )
        sizes = {**original, **given}
    small = replace(problem, sizes=sizes)
    try:
        instantiate(small, "meta").reference()
    except Exception as error:  # the problem's own code may raise anything
        told = f"{type(error).__name__}: {one_line(str(error))}"
        raise UsageError(f"{problem.name} does not run at its {what}: {told}") from error
    elements = count_elements(small)
    if elements is None or elements > MOST_OFFERED:
        raise UsageError(
            f"{problem.name} has {elements} elements at its {what}; what is checked without a GPU "
            f"has {MOST_OFFERED} at the most: offer smaller ones"
        )
    return small


@dataclass(frozen=True)
class Extent:
    """How large a problem is."""

    elements: int
    """Of inputs and outputs."""
    parameters: int

    def is_within(self, other: Extent, budget: int) -> bool:
        """Whether this is smaller than the other; in its parameters alone, where the other has more
        than go with the budget."""
        if self.elements != other.elements:
            return self.elements < other.elements
        return self.parameters < other.parameters and other.parameters > PARAMETERS * budget


def integer_sizes(problem: Problem) -> dict[str, int]:
    """The whole numbers of a problem's source that may be sizes, by name, in order."""
    module = load_module(problem)
    values = {size.name: size.read(module) for size in sizes_of(parse(problem.source))}
    return {name: value for name, value in values.items() if type(value) is int}


def count_elements(problem: Problem) -> int | None:
    """Elements of inputs and outputs, or none where the reference does not run at these sizes."""
    extent = measure(problem)
    return None if extent is None else extent.elements


def measure(problem: Problem) -> Extent | None:
    """How large the problem is; none where the reference does not run at these sizes."""
    import torch

    from beamsearch.problem.dispatch_modes import ShapesOfRecurrence

    try:
        instance = instantiate(problem, "meta")
        with ShapesOfRecurrence():  # type: ignore[no-untyped-call]
            output = instance.reference()
    except Exception:  # noqa: BLE001 - a shrunk reference that raises is the answer sought
        return None
    outputs = output if isinstance(output, tuple | list) else [output]
    tensors = [t for t in (*instance.inputs, *outputs) if isinstance(t, torch.Tensor)]
    if any(t.numel() == 0 for t in tensors):
        return None
    parameters = sum(t.numel() for t in instance.arguments.state.values())
    return Extent(sum(t.numel() for t in tensors), parameters)

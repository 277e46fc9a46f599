"""How much of its tensors a launch can touch at its true shapes, and what it touches outside them.

Bytes are counted with every repetition, so that they bound what is touched from above.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any

import numpy as np

from kernel_profiling.estimate.traffic import Moved, OutputUse
from kernel_profiling.profile import AccessKind

PROGRAMS = 64
"""Programs, spread over the grid, whose bytes stand for all; a smaller grid is counted in full."""
FEWEST = 8
"""With fewer nothing is said of the others."""
WORK = 20_000
"""Interpreted operations that may go into them, about half a second."""


def spread_programs(count: int) -> list[int]:
    """Numbers of programs over a whole grid, the same each time; the first few are spread too."""
    if count <= PROGRAMS:
        return list(range(count))
    # Drawn, each in a part of the grid of its own: what is spaced evenly may be in step with a row.
    draw = Random(count)
    found = [int((part + draw.random()) / PROGRAMS * count) for part in range(PROGRAMS)]
    draw.shuffle(found)
    return list(dict.fromkeys(found))


class Places:
    """Which tensor an address lies in."""

    def __init__(self, sizes: dict[int, int]) -> None:
        """`sizes`: base address -> bytes, which may grow as tensors are met."""
        self._sizes = sizes
        self._bases: list[int] = []

    def find(self, addresses: Any, element_bytes: int) -> tuple[dict[int, int], int | None]:
        """Bytes by base address of the tensors, and how far the farthest address lies outside all
        of them: past an end, or (negative) before a beginning; none where none does."""
        if not len(addresses):
            return {}, None
        if len(self._bases) != len(self._sizes):
            self._bases = sorted(self._sizes)
        low, high = int(addresses.min()), int(addresses.max()) + element_bytes
        base = self._bases[max(bisect_right(self._bases, low) - 1, 0)] if self._bases else 0
        if base <= low and high <= base + self._sizes.get(base, 0):
            return {base: len(addresses) * element_bytes}, None
        bases = np.array(self._bases or [0], dtype=np.int64)
        ends = bases + np.array([self._sizes.get(int(base), 0) for base in bases])
        at = np.maximum(np.searchsorted(bases, addresses, side="right") - 1, 0)
        before, past = bases[at] - addresses, addresses + element_bytes - ends[at]
        outside = np.maximum(before, past)
        numbers, counts = np.unique(at[outside <= 0], return_counts=True)
        found = {
            int(bases[number]): int(times) * element_bytes
            for number, times in zip(numbers, counts, strict=True)
        }
        worst = int(outside.argmax())
        if outside[worst] <= 0:
            return found, None
        # What lies past the end of one tensor may be before the next, and nearer to that.
        following = bases[np.searchsorted(bases, addresses[worst]) :]
        near = int(following[0] - addresses[worst]) if len(following) else None
        if before[worst] > 0 or (near is not None and near < past[worst]):
            return found, -int(before[worst] if before[worst] > 0 else near or 0)
        return found, int(past[worst])


class Stores:
    """Where the programs of a launch stored, without atomics."""

    def __init__(self) -> None:
        self._earlier: dict[int, list[Any]] = defaultdict(list)
        self._own: dict[int, list[Any]] = defaultdict(list)

    def next_program(self) -> None:
        """The stores so far are another program's from now on."""
        for base, stores in self._own.items():
            self._earlier[base] += stores
        self._own.clear()

    def store(self, bases: Iterable[int], addresses: Any) -> None:
        """The running program stores to these addresses, in the tensors at these bases."""
        for base in bases:
            self._own[base].append(addresses)

    def stored_before(self, bases: Iterable[int], addresses: Any) -> bool:
        """Whether another program stored to one of them, and not the running one too."""
        for base in bases:
            if base in self._earlier:
                shared = addresses[np.isin(addresses, np.concatenate(self._earlier[base]))]
                if base in self._own:
                    shared = shared[~np.isin(shared, np.concatenate(self._own[base]))]
                if len(shared):
                    return True
        return False


def moved_by(programs: Sequence[dict[tuple[int, AccessKind], float]], count: int) -> list[Moved]:
    """Bytes of a whole grid of `count` programs, from those of some."""
    totals: dict[tuple[int, AccessKind], list[float]] = defaultdict(list)
    for program in programs:
        for key, size in program.items():
            totals[key].append(size)
    moved = []
    for (base, kind), found in sorted(totals.items()):
        mean = sum(found) / len(programs)
        squares = sum((size - mean) ** 2 for size in found)
        squares += (len(programs) - len(found)) * mean**2
        error = 0.0 if len(programs) == count else math.sqrt(squares) / len(programs)
        figures = {"bytes": mean, "error_bytes": error, "most_bytes": max(found)}
        whole = {name: each * count for name, each in figures.items()}
        moved.append(Moved(storage=base, kind=kind, **whole))
    return moved


class Fills:
    """Which memory torch itself writes, in the call it is used around."""

    def __init__(self) -> None:
        self._written: dict[int, Any] = {}
        """Key -> storage, which keeps the key from being used again."""

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look at every operation."""
        from torch.utils._python_dispatch import TorchDispatchMode

        def dispatched(_: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            named = kwargs or {}
            result = func(*args, **named)
            if not func.overloadpacket.__name__.startswith(("empty", "new_empty")):
                given = _storages([*args, *named.values()])
                written = [
                    value
                    for argument, value in zip(func._schema.arguments, args, strict=False)
                    if argument.alias_info is not None and argument.alias_info.is_write
                ]
                made = _storages([result])
                self._written |= {key: made[key] for key in made.keys() - given.keys()}
                self._written |= _storages(written)
            return result

        mode: Any = type("Watching", (TorchDispatchMode,), {"__torch_dispatch__": dispatched})
        with mode():
            yield

    def outputs(self, result: Any, address: Any) -> list[OutputUse]:
        """Every dense tensor that a call returned; `address` gives a tensor's base address."""
        import torch

        values = result if isinstance(result, tuple | list) else [result]
        return [
            OutputUse(
                storage=address(value),
                bytes=value.numel() * value.element_size(),
                filled=value.untyped_storage()._cdata in self._written,
            )
            for value in values
            if isinstance(value, torch.Tensor)
            and value.numel() * value.element_size() <= value.untyped_storage().nbytes()
        ]


def _storages(values: Any) -> dict[int, Any]:
    """Storages of the tensors in (nested) values, by their keys."""
    import torch

    found: dict[int, Any] = {}
    for value in values:
        if isinstance(value, torch.Tensor):
            storage = value.untyped_storage()
            found[storage._cdata] = storage
        elif isinstance(value, tuple | list):
            found |= _storages(value)
    return found

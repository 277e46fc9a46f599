"""What interpreted programs touch: accesses by line, repeated reads, turns of loops."""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernel_profiling.compiler.statements import statement_starts
from kernel_profiling.estimate.coverage import Places, Stores
from kernel_profiling.estimate.interpreter import Count
from kernel_profiling.estimate.loops import loops_of
from kernel_profiling.gpus import SECTOR_BYTES
from kernel_profiling.profile import AccessKind

PROGRAM_WORK = 40_000
"""Work after which one program is stopped."""
OUTER_ITERATIONS = 32
"""A loop up to this long is run in full where no loop is around it; a longer one is sampled."""
INNER_ITERATIONS = 9
"""The same inside another loop; a kernel's window of 3 x 3 is run in full."""
SAMPLED_ITERATIONS = (8, 4)
"""Iterations run of a longer loop, outer and inner: its beginning, and its last."""
BRIEF_ITERATIONS = (3, 2)
"""The same where only bytes are counted: outside two that are alike, and the last."""
PATTERN_ELEMENTS = 2048
"""Elements of one access whose lanes are laid out to count sectors."""
LANE_ELEMENTS = (1, 2, 4, 8, 16)


APART = 1 << 40
"""Bytes between two tensors: what misses one, by a wrapped 32-bit offset too, meets no other."""


class Enough(Exception):
    """A program did more than can be interpreted."""


@dataclass
class Line:
    """Sums over the sampled programs for one access of one source line."""

    element_bytes: int
    executions: float = 0.0
    elements: float = 0.0
    active: float = 0.0
    events: int = 0
    patterns: dict[tuple[int, int, int], list[float]] = field(default_factory=dict)
    """(fastest, lane elements, vector) -> requests, sectors, lines."""


@dataclass
class Program:
    """What one program touched: sectors in order of number, weight and last touch of each."""

    weight: float
    limit: float
    """Work of the tracer at which it has done too much."""
    sectors: Any = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    weights: Any = field(default_factory=lambda: np.zeros(0))
    touched: Any = field(default_factory=lambda: np.zeros(0))
    written: Any = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    written_weights: Any = field(default_factory=lambda: np.zeros(0))
    depth: int = 0
    """Loops around the current operation."""
    scale: float = 1.0
    """Product of the loops' weights: iterations that the current one stands for."""
    total: float = 0.0
    """Bytes touched so far, repeated ones too."""
    reuse: dict[int, float] = field(default_factory=lambda: defaultdict(float))
    moved: dict[tuple[int, AccessKind], float] = field(default_factory=lambda: defaultdict(float))
    """(base address, kind) -> bytes, repeated ones too."""
    loaded: int = 0
    """Bytes of the loads that were interpreted, whatever they stand for."""
    stored: int = 0
    """The same of stores and atomics."""


class Tracer:
    """Collects what the programs of one launch do."""

    def __init__(self, file: str, sizes: dict[int, int]) -> None:
        """`sizes`: base address of each tensor's memory -> bytes."""
        self.lines: dict[tuple[int, AccessKind], Line] = {}
        self.turns: dict[int, float] = defaultdict(float)
        """Line of a loop -> turns, summed over the sampled programs."""
        self.work = 0.0
        self.file = file
        self.starts = statement_starts(file)
        self.loops = loops_of(file)
        self.places = Places(sizes)
        self.strays: dict[tuple[int, AccessKind], int] = {}
        self.follows_data = False
        self.uneven_loads = self.uneven_stores = False
        """Whether a turn of a sampled loop moved other bytes than the turns it stands for."""
        self.brief = False
        """Whether only bytes by tensor and strays are wanted."""
        self.others = Stores()
        self.races: set[int] = set()
        """Lines that load what another program of the launch stored."""
        self.program = self.begin(1.0)

    def begin(self, weight: float) -> Program:
        """Start a program that stands for `weight` of the grid."""
        self.program = Program(weight, self.work + PROGRAM_WORK)
        self.others.next_program()
        return self.program

    def spend(self, work: float) -> None:
        """Count work; raises Enough where a program did too much."""
        self.work += work
        if self.work > self.program.limit:
            raise Enough

    def current_line(self) -> int:
        """The source line of the kernel's file that is being interpreted."""
        frame: Any = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename != self.file:
            frame = frame.f_back
        line: int = frame.f_lineno if frame is not None else 0
        return self.starts.get(line, line)

    def range(self, *bounds: Any) -> Iterator[int]:
        """Stands in for `range` in a kernel: a long loop runs its beginning and its last turn."""
        turns = range(*(bound.__index__() for bound in bounds))
        program, count = self.program, len(turns)
        inner = program.depth > 0
        keep = (BRIEF_ITERATIONS if self.brief else SAMPLED_ITERATIONS)[inner]
        full = INNER_ITERATIONS if inner else OUTER_ITERATIONS
        line = self.current_line()
        if count <= (keep if self.brief else full) or line in self.loops.collecting:
            chosen = [(index, 1.0) for index in range(count)]
        else:
            middle = (count - 2) / max(keep - 2, 1)
            first = 1.0 if keep > 2 else count - 1.0
            chosen = [(0, first), *((i, middle) for i in range(1, keep - 1)), (count - 1, 1.0)]
        outside = program.scale
        self.turns[line] += outside * program.weight * count
        program.depth += 1
        loaded, stored = list[int](), list[int]()
        try:
            for index, weight in chosen:
                program.scale = outside * weight
                before = program.loaded, program.stored
                yield Count(turns[index])
                loaded.append(program.loaded - before[0])
                stored.append(program.stored - before[1])
            if len(chosen) < count:
                self.uneven_loads |= _uneven(loaded)
                self.uneven_stores |= _uneven(stored) or (keep == 2 and any(stored))
                self.uneven_stores |= line in self.loops.with_memory
        finally:
            program.scale = outside
            program.depth -= 1

    def access(self, kind: AccessKind, pointers: Any, mask: Any, element_bytes: int) -> None:
        """Record one access of a block of pointers."""
        addresses = np.asarray(pointers)
        allowed = np.broadcast_to(np.asarray(mask, dtype=bool), addresses.shape)
        self.spend(1 + addresses.size / 4000)
        touched = addresses[allowed].astype(np.int64)
        self._place(kind, touched, element_bytes)
        if self.brief:
            return
        line = self.lines.setdefault((self.current_line(), kind), Line(element_bytes))
        weight = self.program.scale * self.program.weight
        line.executions += weight
        line.elements += weight * addresses.size
        line.active += weight * int(allowed.sum())
        line.events += 1
        if line.events <= 40 or line.events % 7 == 0:
            self.spend(2.0)
            self._lay_out(line, addresses, allowed, weight)
        sectors = np.unique(touched // SECTOR_BYTES)
        if kind == "load":
            _read(self.program, sectors)
        else:
            _write(self.program, sectors)

    def _place(self, kind: AccessKind, addresses: Any, element_bytes: int) -> None:
        """Count bytes by tensor, and note what is outside of all."""
        found, distance = self.places.find(addresses, element_bytes)
        if kind == "store":
            self.others.store(found, addresses)
        elif kind == "load" and self.others.stored_before(found, addresses):
            self.races.add(self.current_line())
        for base, size in found.items():
            self.program.moved[base, kind] += size * self.program.scale
            if kind == "load":
                self.program.loaded += size
            else:
                self.program.stored += size
        if distance is not None:
            key = (self.current_line(), kind)
            self.strays[key] = max(distance, self.strays.get(key, 0), key=abs)

    def _lay_out(self, line: Line, addresses: Any, allowed: Any, weight: float) -> None:
        """Count sectors for every way lanes may be laid over the elements."""
        for fastest in range(addresses.ndim) if addresses.ndim else (0,):
            if addresses.ndim > 1 and addresses.shape[fastest] == 1:
                continue
            flat, open_ = (
                (np.moveaxis(a, fastest, -1) if a.ndim else a).reshape(-1)[:PATTERN_ELEMENTS]
                for a in (addresses, allowed)
            )
            numbers = np.where(open_, flat.astype(np.int64) // SECTOR_BYTES, -1)
            for owned in LANE_ELEMENTS:
                if owned > 1 and owned * 32 > 2 * len(numbers):
                    break
                warp = 32 * owned
                padded = np.full(-(-len(numbers) // warp) * warp, -1, dtype=np.int64)
                padded[: len(numbers)] = numbers
                for vector in LANE_ELEMENTS:
                    if vector > owned or vector * line.element_bytes > 16:
                        break
                    split = padded.reshape(-1, 32, owned // vector, vector)
                    requests = split.transpose(0, 2, 1, 3).reshape(-1, 32 * vector)
                    known = line.patterns.setdefault((fastest, owned, vector), [0.0, 0.0, 0.0])
                    known[0] += weight * len(requests)
                    known[1] += weight * _distinct(requests)
                    known[2] += weight * _distinct(np.where(requests < 0, -1, requests // 4))


def _uneven(moved: list[int]) -> bool:
    """Whether turns of a loop moved other bytes than each other: the last may be a part of one, and
    where it moved more, others between may have done so too."""
    *others, last = moved
    return len(set(others)) > 1 or last > max(others, default=last)


def _read(program: Program, sectors: Any) -> None:
    """Tell first touches from repeated ones, and how far back those lie."""
    at = np.searchsorted(program.sectors, sectors)
    known = np.zeros(len(sectors), dtype=bool)
    inside = at < len(program.sectors)
    known[inside] = program.sectors[at[inside]] == sectors[inside]
    again = at[known]
    unique = float(program.weights.sum()) * SECTOR_BYTES
    most = math.ceil(math.log2(max(unique, SECTOR_BYTES)))
    distances = np.maximum(program.total - program.touched[again], SECTOR_BYTES)
    powers, counts = np.unique(np.ceil(np.log2(distances)), return_counts=True)
    for power, times in zip(powers, counts, strict=True):
        program.reuse[int(min(power, most))] += float(times) * program.scale * SECTOR_BYTES
    program.total += len(sectors) * program.scale * SECTOR_BYTES
    program.touched[again] = program.total
    fresh, places = sectors[~known], at[~known]
    program.sectors = np.insert(program.sectors, places, fresh)
    program.weights = np.insert(program.weights, places, program.scale)
    program.touched = np.insert(program.touched, places, program.total)


def _write(program: Program, sectors: Any) -> None:
    fresh = np.setdiff1d(sectors, program.written)
    places = np.searchsorted(program.written, fresh)
    program.written = np.insert(program.written, places, fresh)
    program.written_weights = np.insert(program.written_weights, places, program.scale)
    program.total += len(sectors) * program.scale * SECTOR_BYTES


def _distinct(rows: Any) -> int:
    """Distinct values in each row, summed over rows; -1 is none."""
    ordered = np.sort(rows, axis=1)
    steps = int((ordered[:, 1:] != ordered[:, :-1]).sum()) + len(ordered)
    return steps - int((ordered[:, 0] == -1).sum())


class Storages:
    """Gives every tensor's memory an address of its own; `meta` tensors have none."""

    def __init__(self) -> None:
        self._bases: dict[int, tuple[int, Any]] = {}
        """Key -> base address, and the storage, which keeps the key from being used again."""
        self.sizes: dict[int, int] = {}
        """Base address -> bytes."""
        self._next = APART

    def address(self, tensor: Any) -> int:
        """Address of the tensor's first element."""
        return self.base(tensor) + int(tensor.storage_offset() * tensor.element_size())

    def base(self, tensor: Any) -> int:
        """Address of the memory that the tensor lies in."""
        storage = tensor.untyped_storage()
        if storage._cdata not in self._bases:
            self._bases[storage._cdata] = self._next, storage
            self.sizes[self._next] = storage.nbytes()
            self._next += -(-storage.nbytes() // (1 << 21)) * (1 << 21) + APART
        return self._bases[storage._cdata][0]

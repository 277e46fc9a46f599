"""Which memory a call touches at its true shapes, from a few interpreted programs of each launch.

Runs where TRITON_INTERPRET=1 was set before triton was imported, on `meta` tensors: no memory is
read or written, loads give zeros. All limits are counts, never clocks, so that a trace is the same
on every machine.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from kernel_profiling.compiler.fake_device import TargetDriver, target_device
from kernel_profiling.errors import one_line
from kernel_profiling.estimate import coverage
from kernel_profiling.estimate.coverage import Fills
from kernel_profiling.estimate.interception import (
    InterpretedLaunch,
    intercepted_launches,
    intercepted_memory,
)
from kernel_profiling.estimate.tracer import Enough, Program, Storages, Tracer
from kernel_profiling.estimate.traffic import (
    AccessTrace,
    LaunchTrace,
    LineAccess,
    Moved,
    Neighbour,
    OutputUse,
    Pattern,
    Reuse,
    Stray,
    TensorUse,
)
from kernel_profiling.gpus import SECTOR_BYTES, Gpu
from kernel_profiling.profile import AccessKind

WORK = 60_000
"""Interpreted work of one launch, in units of one operation, about 25 microseconds."""
MOST_PROGRAMS = 16
_MIDDLE = 0.537
"""Where in the grid the program lies that others are compared with: not where a half of the grid,
and so perhaps a tensor's plane, begins."""


def trace_call(call: Callable[[], object], gpu: Gpu) -> AccessTrace:
    """Run a bound call on `meta` tensors and interpret some programs of each launch.

    What the interpreter cannot do, and an error in the call, are in `failed`; never raises
    for them. An autotuned launch is traced in its first few configurations.
    """
    import triton

    if not triton.knobs.runtime.interpret:
        return AccessTrace(failed="TRITON_INTERPRET was not set before triton loaded")
    launches: list[LaunchTrace] = []
    failed: str | None = None
    fills, outputs = Fills(), list[OutputUse]()
    with (
        target_device(gpu),
        intercepted_launches(
            lambda launch: launches.append(_trace(launch)), TargetDriver(gpu)
        ) as storages,
    ):
        try:
            with fills.watching():
                result = call()
            outputs = fills.outputs(result, storages.base)
        except Exception as error:  # noqa: BLE001 - a candidate may raise anything; it is reported
            failed = _say(error)
    failed = failed or next((launch.failed for launch in launches if launch.failed), None)
    return AccessTrace(launches=launches, outputs=outputs, failed=failed)


def _trace(launch: InterpretedLaunch) -> LaunchTrace:
    """Interpret a sample of one launch's programs."""
    from triton.runtime import interpreter

    x, y, z = launch.grid
    tracer = Tracer(launch.function.__code__.co_filename, launch.storages.sizes)
    limit = WORK * launch.share
    programs: dict[int, Program] = {}
    failed: str | None = None
    moved: list[Moved] | None = None
    builder = interpreter.interpreter_builder
    builder.set_grid_dim(x, y, z)

    def run(number: int, weight: float) -> Program:
        builder.set_grid_idx(number % x, number // x % y, number // (x * y))
        program = tracer.begin(weight)
        if not tracer.brief:
            programs[number] = program
        launch.function(**launch.arguments)
        return program

    with intercepted_memory(tracer, launch.function.__globals__):
        try:
            for number, weight in _sample(x, y, z):
                if len(programs) > 1 and tracer.work * (1 + 1 / len(programs)) > limit:
                    break
                run(number, weight)
            moved = _moved(run, tracer, dict(programs), x * y * z, limit)
        except Exception as error:  # noqa: BLE001 - the interpreter has gaps; they are reported
            failed = None if _is_enough(error) else _say(error)
    total = sum(program.weight for program in programs.values()) or 1.0
    reuse: dict[int, float] = defaultdict(float)
    for program in programs.values():
        for bucket, size in program.reuse.items():
            reuse[bucket] += size * program.weight / total
    strays = sorted(tracer.strays.items())
    return LaunchTrace(
        name=launch.function.__name__,
        grid=launch.grid,
        config=launch.config,
        failed=failed,
        lines=_lines(tracer, total),
        loops={line: n / total for line, n in sorted(tracer.turns.items())},
        tensors=_tensors(launch.storages, programs, total),
        reuse=[Reuse(distance_bytes=2.0**b, bytes=n) for b, n in sorted(reuse.items()) if n],
        moved=moved,
        strays=[Stray(line=n, kind=kind, distance_bytes=far) for (n, kind), far in strays],
        races=sorted(tracer.races),
        follows_data=tracer.follows_data,
    )


def _moved(
    run: Callable[[int, float], Program],
    tracer: Tracer,
    programs: dict[int, Program],
    count: int,
    limit: float,
) -> list[Moved] | None:
    """Bytes of the whole grid by tensor, from programs all over it: those that were interpreted,
    and more as far as work allows. None where they cannot tell."""
    wanted = coverage.spread_programs(count)
    found: list[dict[tuple[int, AccessKind], float]] = []
    tracer.brief = True
    before, limit = tracer.work, min(limit, coverage.WORK)
    # The first and the last go farthest to their tensors' ends: they tell of strays, not of means.
    ends = [number for number in (count - 1, 0) if number not in programs]
    for number in dict.fromkeys([*ends, *wanted]):
        if number not in programs:
            spent = tracer.work - before
            if spent and spent * (1 + 1 / (len(found) + 1)) > limit:
                break
            try:
                programs[number] = run(number, 0.0)
            except Exception as error:
                if _is_enough(error):
                    return None
                raise
        if number in wanted:
            found.append(programs[number].moved)
    if tracer.uneven_stores or len(found) < min(coverage.FEWEST, count):
        return None
    moved = coverage.moved_by(found, count)
    stored = {key for program in programs.values() for key in program.moved if key[1] != "load"}
    if not stored <= {(item.storage, item.kind) for item in moved}:
        return None  # few programs store there, and which ones is not known
    return [item for item in moved if item.kind != "load"] if tracer.uneven_loads else moved


def _say(error: Exception) -> str:
    return one_line(f"{type(error).__name__}: {error}", 300)


def _is_enough(error: BaseException | None) -> bool:
    """Whether this is the tracer's own stop, which the interpreter wraps in an error of its own."""
    while error is not None:
        if isinstance(error, Enough) or Enough.__name__ in str(error):
            return True
        error = error.__cause__
    return False


def _sample(x: int, y: int, z: int) -> Iterator[tuple[int, float]]:
    """Numbers of programs in launch order, most telling first, and how many each stands for.

    A program in the middle, some spread over the grid, the first and the last count for the means;
    the ones before the middle one (in a row, a grid row, a grid plane) only for what is shared.
    """
    count = x * y * z
    middle = int(count * _MIDDLE)
    spread = [count * part // 7 for part in (5, 2, 6, 1, 4)]
    means = list(dict.fromkeys([middle, *spread]))
    edges = [n for n in (0, count - 1) if n not in means]
    before = [
        middle - step
        for step in (1, 2, x, 3, 4, x * y, x - 1, x + 1, 5, 6, 7, 8, 2 * x, 10, 12, 16, 3 * x)
        if step > 0
    ]
    share = max(count - len(edges), 1) / len(means) / count
    order = [middle, *before[:3], *means[1:4], *before[3:6], *edges, *means[4:], *before[6:]]
    seen: set[int] = set()
    for number in order:
        if 0 <= number < count and number not in seen and len(seen) < MOST_PROGRAMS:
            seen.add(number)
            yield number, share if number in means else 1 / count if number in edges else 0.0


def _lines(tracer: Tracer, total: float) -> list[LineAccess]:
    return [
        LineAccess(
            line=number,
            kind=kind,
            element_bytes=line.element_bytes,
            executions=line.executions / total,
            elements=line.elements / total,
            active=line.active / line.elements,
            patterns=[
                Pattern(
                    fastest=fastest,
                    lane_elements=owned,
                    vector=vector,
                    sectors=round(sectors / requests, 3),
                    lines=round(lines / requests, 3),
                )
                for (fastest, owned, vector), (requests, sectors, lines) in sorted(
                    line.patterns.items()
                )
                if requests
            ],
        )
        for (number, kind), line in sorted(tracer.lines.items())
        if line.elements  # a line that only shared-data programs ran tells nothing
    ]


def _tensors(storages: Storages, programs: dict[int, Program], total: float) -> list[TensorUse]:
    """What a program touches of each tensor, and what of it an earlier program touched."""
    if not programs:
        return []
    number, middle = next(iter(programs.items()))  # the first that was interpreted
    # For each sector that it read, how many programs ago it was read last; 0: never.
    shared = np.zeros(len(middle.sectors), dtype=np.int64)
    for before in sorted((n for n in programs if n < number), reverse=True):
        seen = np.isin(middle.sectors, programs[before].sectors, assume_unique=True)
        shared[seen & (shared == 0)] = number - before
    uses = []
    for base, size in storages.sizes.items():
        ends = base // SECTOR_BYTES, -(-(base + size) // SECTOR_BYTES)

        def part(sectors: Any, weights: Any, ends: tuple[int, int] = ends) -> Any:
            return weights[slice(*np.searchsorted(sectors, ends))]

        read = written = 0.0
        for program in programs.values():
            share = program.weight / total * SECTOR_BYTES
            read += share * float(part(program.sectors, program.weights).sum())
            written += share * float(part(program.written, program.written_weights).sum())
        if not read and not written:
            continue
        by_distance: dict[int, float] = defaultdict(float)
        weights = part(middle.sectors, middle.weights)
        for distance, weight in zip(part(middle.sectors, shared), weights, strict=True):
            if distance:
                by_distance[int(distance)] += float(weight) * SECTOR_BYTES
        own = float(weights.sum()) * SECTOR_BYTES
        scale = read / own if own else 0.0
        near = [Neighbour(distance=d, bytes=n * scale) for d, n in sorted(by_distance.items())]
        uses.append(
            TensorUse(storage_bytes=size, read_bytes=read, written_bytes=written, neighbours=near)
        )
    return uses

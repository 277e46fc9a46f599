"""Which memory a call touches at its true shapes, from a few interpreted programs of each launch.

Runs where TRITON_INTERPRET=1 was set before triton was imported, on `meta` tensors: no memory is
read or written, loads give zeros. All limits are counts, never clocks, so that a trace is the same
on every machine.
"""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from profiling.gpus import Gpu
from profiling.statements import statement_starts
from profiling.traffic import (
    SECTOR,
    AccessKind,
    AccessTrace,
    LaunchTrace,
    LineAccess,
    Neighbour,
    Pattern,
    Reuse,
    TensorUse,
    launch_traffic,
)

__all__ = ["AccessTrace", "LaunchTrace", "trace_call"]

WORK = 24_000
"""Interpreted work of one launch, in units of one operation on a block, about 100 microseconds."""
PROGRAM_WORK = 6_000
"""Work after which one program is stopped."""
MOST_PROGRAMS = 20
MOST_CONFIGS = 4
"""Configurations of one autotuner that are traced."""
OUTER_ITERATIONS = 32
"""A loop up to this long is run in full where no loop is around it; a longer one is sampled."""
INNER_ITERATIONS = 9
"""The same inside another loop; a kernel's window of 3 x 3 is run in full."""
SAMPLED_ITERATIONS = (8, 4)
"""Iterations run of a longer loop, outer and inner: its beginning, and its last."""
PATTERN_ELEMENTS = 2048
"""Elements of one access whose lanes are laid out to count sectors."""
LANE_ELEMENTS = (1, 2, 4, 8, 16)


_MIDDLE = 0.537
"""Where in the grid the program lies that others are compared with: not where a half of the grid,
and so perhaps a tensor's plane, begins."""


class _Enough(Exception):
    """A program did more than can be interpreted."""


@dataclass
class _Line:
    """Sums over the sampled programs for one access of one source line."""

    element_bytes: int
    rank: int
    executions: float = 0.0
    elements: float = 0.0
    active: float = 0.0
    events: int = 0
    patterns: dict[tuple[int, int, int], list[float]] = field(default_factory=dict)
    """(fastest, lane elements, vector) -> requests, sectors, lines."""


@dataclass
class _Program:
    """What one program touched: sectors in order of number, weight and last touch of each."""

    weight: float
    sectors: Any
    weights: Any
    touched: Any
    written: Any
    written_weights: Any
    total: float = 0.0
    """Bytes touched so far, repeated ones too."""
    reuse: dict[int, float] = field(default_factory=lambda: defaultdict(float))


class _Tracer:
    """Collects what the programs of one launch do."""

    def __init__(self, storages: _Storages) -> None:
        self.storages = storages
        self.lines: dict[tuple[int, AccessKind], _Line] = {}
        self.turns: dict[int, float] = defaultdict(float)
        """Line of a loop -> turns, summed over the sampled programs."""
        self.depth = 0
        self.scale = 1.0
        """Product of the loops' weights: iterations that the current one stands for."""
        self.work = 0.0
        self.program_limit = 0.0
        self.file = ""
        self.starts: dict[int, int] = {}
        self.program = self.begin(1.0)

    def begin(self, weight: float) -> _Program:
        """Start a program that stands for `weight` of the grid."""
        import numpy as np

        none, number = np.zeros(0), np.zeros(0, dtype=np.int64)
        self.program = _Program(weight, number, none, none, number, none)
        self.program_limit = self.work + PROGRAM_WORK
        self.depth = 0
        self.scale = 1.0
        return self.program

    def spend(self, work: float) -> None:
        """Count work; raises _Enough where a program did too much."""
        self.work += work
        if self.work > self.program_limit:
            raise _Enough

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
        inner = self.depth > 0
        count = len(turns)
        keep = SAMPLED_ITERATIONS[inner]
        if count <= (INNER_ITERATIONS if inner else OUTER_ITERATIONS):
            chosen = [(index, 1.0) for index in range(count)]
        else:
            middle = (count - 2) / (keep - 2)
            chosen = [(0, 1.0), *((i, middle) for i in range(1, keep - 1)), (count - 1, 1.0)]
        outside = self.scale
        self.turns[self.current_line()] += outside * self.program.weight * count
        self.depth += 1
        try:
            for index, weight in chosen:
                self.scale = outside * weight
                yield turns[index]
        finally:
            self.scale = outside
            self.depth = max(self.depth - 1, 0)

    def access(self, kind: AccessKind, pointers: Any, mask: Any, element_bytes: int) -> None:
        """Record one access of a block of pointers."""
        import numpy as np

        addresses = np.asarray(pointers)
        allowed = np.broadcast_to(np.asarray(mask, dtype=bool), addresses.shape)
        self.spend(1 + addresses.size / 4000)
        line = self.lines.setdefault(
            (self.current_line(), kind), _Line(element_bytes, max(addresses.ndim, 1))
        )
        weight = self.scale * self.program.weight
        line.executions += weight
        line.elements += weight * addresses.size
        line.active += weight * int(allowed.sum())
        line.events += 1
        if line.events <= 40 or line.events % 7 == 0:
            self.spend(2.0)
            self._lay_out(line, addresses, allowed, weight)
        sectors = np.unique(addresses[allowed].astype(np.int64) // SECTOR)
        if kind == "load":
            self._read(sectors)
        else:
            self._write(sectors)

    def _lay_out(self, line: _Line, addresses: Any, allowed: Any, weight: float) -> None:
        """Count sectors for every way lanes may be laid over the elements."""
        import numpy as np

        for fastest in range(addresses.ndim) if addresses.ndim else (0,):
            if addresses.ndim > 1 and addresses.shape[fastest] == 1:
                continue
            flat, open_ = (
                (np.moveaxis(a, fastest, -1) if a.ndim else a).reshape(-1)[:PATTERN_ELEMENTS]
                for a in (addresses, allowed)
            )
            numbers = np.where(open_, flat.astype(np.int64) // SECTOR, -1)
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

    def _read(self, sectors: Any) -> None:
        """Tell first touches from repeated ones, and how far back those lie."""
        import numpy as np

        program = self.program
        at = np.searchsorted(program.sectors, sectors)
        known = np.zeros(len(sectors), dtype=bool)
        inside = at < len(program.sectors)
        known[inside] = program.sectors[at[inside]] == sectors[inside]
        again = at[known]
        unique = float(program.weights.sum()) * SECTOR
        for power, times in zip(
            *np.unique(
                np.ceil(np.log2(np.maximum(program.total - program.touched[again], SECTOR))),
                return_counts=True,
            ),
            strict=True,
        ):
            bucket = int(min(power, math.ceil(math.log2(max(unique, SECTOR)))))
            program.reuse[bucket] += float(times) * self.scale * SECTOR
        program.total += len(sectors) * self.scale * SECTOR
        program.touched[again] = program.total
        fresh = sectors[~known]
        if len(fresh):
            places = at[~known]
            program.sectors = np.insert(program.sectors, places, fresh)
            program.weights = np.insert(program.weights, places, self.scale)
            program.touched = np.insert(program.touched, places, program.total)

    def _write(self, sectors: Any) -> None:
        import numpy as np

        program = self.program
        fresh = np.setdiff1d(sectors, program.written)
        places = np.searchsorted(program.written, fresh)
        program.written = np.insert(program.written, places, fresh)
        program.written_weights = np.insert(program.written_weights, places, self.scale)
        program.total += len(sectors) * self.scale * SECTOR


def _distinct(rows: Any) -> int:
    """Distinct values in each row, summed over rows; -1 is none."""
    import numpy as np

    ordered = np.sort(rows, axis=1)
    steps = int((ordered[:, 1:] != ordered[:, :-1]).sum()) + len(ordered)
    return steps - int((ordered[:, 0] == -1).sum())


class _Storages:
    """Gives every tensor's memory an address of its own; `meta` tensors have none."""

    def __init__(self) -> None:
        self._bases: dict[int, int] = {}
        self.sizes: dict[int, int] = {}
        """Base address -> bytes."""
        self._kept: list[Any] = []
        self._next = 1 << 40

    def address(self, tensor: Any) -> int:
        """Address of the tensor's first element."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._bases:
            self._kept.append(storage)  # keeps the key from being used again
            self._bases[key] = self._next
            self.sizes[self._next] = storage.nbytes()
            self._next += -(-storage.nbytes() // (1 << 21)) * (1 << 21) + (1 << 21)
        offset: int = tensor.storage_offset() * tensor.element_size()
        return self._bases[key] + offset


def trace_call(call: Callable[[], object], gpu: Gpu) -> AccessTrace:
    """Run a bound call on `meta` tensors and interpret some programs of each launch.

    What the interpreter cannot do, and an error in the call, are told in `failed`; never raises
    for them. An autotuned launch is traced in its first MOST_CONFIGS configurations.
    """
    import triton

    if not triton.knobs.runtime.interpret:
        return AccessTrace(gpu=gpu.name, failed="TRITON_INTERPRET was not set before triton loaded")
    launches: list[LaunchTrace] = []
    failed: str | None = None
    with _intercepted(launches):
        try:
            call()
        except Exception as error:  # noqa: BLE001 - a candidate may raise anything; it is reported
            failed = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    traffic: dict[str, float] = defaultdict(float)
    for launch in launches:
        failed = failed or launch.failed
        blocks = max(1, gpu.max_warps_per_sm // 2 // launch.num_warps)
        for level, size in launch_traffic(launch, gpu, blocks).items():
            traffic[level] += size
    return AccessTrace(
        gpu=gpu.name,
        launches=launches,
        traffic={level: traffic[level] for level in ("l1", "l2", "dram")} if launches else {},
        failed=failed,
    )


def _trace_launch(
    executor: Any, arguments: dict[str, Any], num_warps: int, storages: _Storages
) -> LaunchTrace:
    """Interpret a sample of one launch's programs."""
    from triton.runtime import interpreter

    grid = executor.grid(arguments) if callable(executor.grid) else executor.grid
    x, y, z, *_ = (*(int(n) for n in grid), 1, 1)
    tracer = _Tracer(storages)
    tracer.file = executor.fn.__code__.co_filename
    tracer.starts = statement_starts(tracer.file)
    programs: dict[int, _Program] = {}
    cut_short = False
    failed: str | None = None
    interpreter.interpreter_builder.set_grid_dim(x, y, z)
    names = executor.fn.__globals__
    shadowed = names.get("range", _MISSING)
    with _memory(tracer):
        names["range"] = tracer.range
        try:
            for number, weight in _sample(x, y, z):
                if len(programs) > 1 and tracer.work * (1 + 1 / len(programs)) > WORK:
                    break
                where = (number % x, number // x % y, number // (x * y))
                interpreter.interpreter_builder.set_grid_idx(*where)
                programs[number] = tracer.begin(weight)
                executor.fn(**arguments)
        except _Enough:
            cut_short = True
        except Exception as error:  # noqa: BLE001 - the interpreter has gaps; they are reported
            cut_short = _is_enough(error)
            if not cut_short:
                failed = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        finally:
            if shadowed is _MISSING:
                del names["range"]
            else:
                names["range"] = shadowed
    return _summary(executor, tracer, programs, (x, y, z), num_warps).model_copy(
        update={"cut_short": cut_short, "failed": failed}
    )


_MISSING = object()


def _is_enough(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, _Enough) or "_Enough" in str(error):
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


def _summary(
    executor: Any,
    tracer: _Tracer,
    programs: dict[int, _Program],
    grid: tuple[int, int, int],
    num_warps: int,
) -> LaunchTrace:
    total = sum(program.weight for program in programs.values()) or 1.0
    reuse: dict[int, float] = defaultdict(float)
    for program in programs.values():
        for bucket, size in program.reuse.items():
            reuse[bucket] += size * program.weight / total
    return LaunchTrace(
        name=executor.fn.__name__,
        grid=grid,
        num_warps=num_warps,
        sampled=len(programs),
        lines=[
            LineAccess(
                line=number,
                kind=kind,
                element_bytes=line.element_bytes,
                rank=line.rank,
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
        ],
        loops={line: n / total for line, n in sorted(tracer.turns.items())},
        tensors=_tensors(tracer.storages, programs),
        reuse=[
            Reuse(distance_bytes=2.0**b, bytes=size) for b, size in sorted(reuse.items()) if size
        ],
    )


def _tensors(storages: _Storages, programs: dict[int, _Program]) -> list[TensorUse]:
    """What a program touches of each tensor, and what of it an earlier program touched."""
    import numpy as np

    if not programs:
        return []
    total = sum(program.weight for program in programs.values()) or 1.0
    middle = next(iter(programs))  # the first that was interpreted
    shared = _shared(programs, middle)
    uses = []
    for base, size in storages.sizes.items():
        low, high = base // SECTOR, -(-(base + size) // SECTOR)
        read = written = 0.0
        for program in programs.values():
            share = program.weight / total * SECTOR
            part = slice(*np.searchsorted(program.sectors, [low, high]))
            read += share * float(program.weights[part].sum())
            part = slice(*np.searchsorted(program.written, [low, high]))
            written += share * float(program.written_weights[part].sum())
        if not read and not written:
            continue
        part = slice(*np.searchsorted(programs[middle].sectors, [low, high]))
        by_distance: dict[int, float] = defaultdict(float)
        own = float(programs[middle].weights[part].sum()) * SECTOR
        for distance, weight in zip(shared[part], programs[middle].weights[part], strict=True):
            if distance:
                by_distance[int(distance)] += float(weight) * SECTOR
        scale = read / own if own else 0.0
        uses.append(
            TensorUse(
                storage_bytes=size,
                read_bytes=read,
                written_bytes=written,
                neighbours=[
                    Neighbour(distance=distance, bytes=size * scale)
                    for distance, size in sorted(by_distance.items())
                ],
            )
        )
    return uses


def _shared(programs: dict[int, _Program], middle: int) -> Any:
    """For each sector the middle program read, how many programs ago it was read last; 0: never."""
    import numpy as np

    mine = programs[middle].sectors
    distance = np.zeros(len(mine), dtype=np.int64)
    for number in sorted((n for n in programs if n < middle), reverse=True):
        found = np.isin(mine, programs[number].sectors, assume_unique=True) & (distance == 0)
        distance[found] = middle - number
    return distance


@contextmanager
def _intercepted(launches: list[LaunchTrace]) -> Iterator[None]:
    """Trace every launch instead of running it, and put everything back."""
    from triton.runtime import interpreter
    from triton.runtime.autotuner import Autotuner

    from profiling.interpreter import mend_interpreter

    mend_interpreter()
    storages = _Storages()
    convert, execute = interpreter._implicit_cvt, interpreter.GridExecutor.__call__
    tune = Autotuner.run
    config: list[str | None] = [None]

    def implicit_cvt(argument: Any) -> Any:
        value = convert(argument)
        if hasattr(argument, "untyped_storage"):
            value.handle.data[...] = storages.address(argument)
        return value

    def call(executor: Any, *args: Any, **kwargs: Any) -> None:
        launches.append(_launch(executor, args, kwargs, storages, config[0]))

    def tuned(tuner: Any, *args: Any, **kwargs: Any) -> Any:
        tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
        result = None
        try:
            for choice in list(tuner.prune_configs(kwargs))[:MOST_CONFIGS]:
                config[0] = str(choice)
                result = tuner.fn.run(*args, **kwargs, **choice.all_kwargs())
        finally:
            config[0] = None
        return result

    interpreter._implicit_cvt = implicit_cvt
    interpreter.GridExecutor.__call__ = call
    Autotuner.run = tuned
    try:
        yield
    finally:
        interpreter._implicit_cvt = convert
        interpreter.GridExecutor.__call__ = execute
        Autotuner.run = tune


def _launch(
    executor: Any, args: Any, kwargs: Any, storages: _Storages, config: str | None
) -> LaunchTrace:
    """Bind one launch's arguments as the interpreter does, and trace it."""
    import inspect

    from triton.runtime import interpreter

    num_warps = int(kwargs.get("num_warps", 4))
    known = inspect.getfullargspec(executor.fn).args
    bound = inspect.getcallargs(
        executor.fn, *args, **{name: value for name, value in kwargs.items() if name in known}
    )
    scope = interpreter._patch_lang(executor.fn)
    try:
        arguments = {
            name: value if name in executor.constexprs else interpreter._implicit_cvt(value)
            for name, value in bound.items()
        }
        trace = _trace_launch(executor, arguments, num_warps, storages)
    finally:
        scope.restore()
    return trace.model_copy(update={"config": config})


_REPLACED = (
    "create_masked_load",
    "create_masked_store",
    "create_atomic_rmw",
    "create_atomic_cas",
    "binary_op",
)


@contextmanager
def _memory(tracer: _Tracer) -> Iterator[None]:
    """Loads, stores and atomics tell the tracer and touch nothing."""
    import numpy as np
    from triton.runtime import interpreter

    builder = interpreter.InterpreterBuilder
    before = {name: getattr(builder, name) for name in _REPLACED}
    options, convert = interpreter.interpreter_builder.options, interpreter._convert_float

    def size(pointers: Any) -> int:
        return max(1, int(pointers.get_element_ty().primitive_bitwidth) // 8)

    def data(mask: Any) -> Any:
        return mask.data if hasattr(mask, "dtype") and hasattr(mask, "get_element_ty") else mask

    def load(self: Any, ptrs: Any, mask: Any, other: Any, *rest: Any, **named: Any) -> Any:
        tracer.access("load", ptrs.data, data(mask), size(ptrs))
        kind = ptrs.get_element_ty()
        return interpreter.TensorHandle(
            np.zeros(ptrs.data.shape, dtype=interpreter._get_np_dtype(kind)), kind
        )

    def store(self: Any, ptrs: Any, value: Any, mask: Any, *rest: Any, **named: Any) -> None:
        tracer.access("store", ptrs.data, data(mask), size(ptrs))

    def update(self: Any, op: Any, ptr: Any, val: Any, mask: Any, *rest: Any) -> Any:
        tracer.access("atomic", ptr.data, data(mask), size(ptr))
        return interpreter.TensorHandle(np.zeros_like(val.data), val.dtype.scalar)

    def exchange(self: Any, ptr: Any, cmp: Any, val: Any, *rest: Any) -> Any:
        tracer.access("atomic", ptr.data, True, size(ptr))
        return interpreter.TensorHandle(np.copy(cmp.data), cmp.dtype.scalar)

    def binary(self: Any, lhs: Any, rhs: Any, op: Any) -> Any:
        tracer.spend(1 + lhs.data.size / 50_000)
        return before["binary_op"](self, lhs, rhs, op)

    def narrow(data: Any, source: Any, target: Any, rounding: Any) -> Any:
        """Values do not matter here, and converting bit by bit is slow."""
        return np.zeros(data.shape, dtype=f"uint{target.primitive_bitwidth}")

    for name, stand_in in zip(_REPLACED, (load, store, update, exchange, binary), strict=True):
        setattr(builder, name, stand_in)
    interpreter.range = tracer.range
    interpreter._convert_float = narrow
    interpreter.interpreter_builder.options = replace(options, sanitize_overflow=False)
    try:
        yield
    finally:
        del interpreter.range
        interpreter._convert_float = convert
        interpreter.interpreter_builder.options = options
        for name, function in before.items():
            setattr(builder, name, function)

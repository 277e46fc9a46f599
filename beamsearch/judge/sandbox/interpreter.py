"""Triton's interpreter, fit for judging: mended, four times as fast, its work counted, and watched
for programs that do not wait for each other: run one after the other they need not, on a GPU they
must."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from beamsearch.judge.sandbox.short_operations import shorten_operations

ELEMENTS_AN_OPERATION = 20_000
"""Elements of a block that cost as much as the operation itself does in Triton's own way, about 25
microseconds; the short forms of it take a quarter of that."""


PLAIN_CASTS = {
    ("int32", "int64"),
    *(pair for one in ("bf16", "fp16") for pair in ((one, "fp32"), ("fp32", one))),
}
"""Casts that the interpreter does in one step, once it has found out which they are."""


class TooMuchWork(Exception):
    """A call would take more interpreted operations than it was given."""


class Meter:
    """What the call at hand launched, and the operations it took."""

    def __init__(self) -> None:
        self.begin(None)

    def begin(self, limit: float | None) -> None:
        """Start a call, which may take so many operations; none is no limit."""
        self.limit = limit
        self.launched: set[str] = set()
        self.block = 0
        """The largest whole number among the launches' constexpr arguments."""
        self.work = 0.0
        self._programs = 0
        self._before = 0.0
        self._grid = 1

    def launch(self, executor: Any, arguments: dict[str, Any]) -> None:
        """Note a launch."""
        self.launched.add(executor.fn.__name__)
        sizes = [arguments.get(name) for name in executor.constexprs]
        self.block = max([self.block, *(n for n in sizes if isinstance(n, int))])

    def count(self, elements: int) -> None:
        """An operation was done that gave so many. Raises TooMuchWork."""
        self.work += 1 + elements / ELEMENTS_AN_OPERATION
        if self.limit is not None and self.work > self.limit:
            raise TooMuchWork

    def begin_grid(self, programs: int) -> None:
        """A grid of so many programs starts."""
        self._grid, self._programs, self._before = programs, 0, self.work

    def begin_program(self) -> None:
        """One of its programs starts. Raises TooMuchWork where the rest, as far as the programs
        before it tell, would go beyond the limit."""
        if self.limit is not None and self._programs:
            each = (self.work - self._before) / self._programs
            if self._before + each * self._grid > self.limit:
                raise TooMuchWork
        self._programs += 1


GRANULE_BITS = 16
"""Addresses are compared one by one only where a load and a store fall into the same 64 KB."""


class Race(Exception):
    """A program loads what another one stores, and nothing makes it wait."""


class Order:
    """What the programs of the launch at hand stored, and whether they said so by an atomic.

    A program may load what another stores if that one does an atomic operation behind the store,
    and it does one itself before the load: as a split sum with a ticket does, or a scan that looks
    back.
    """

    def __init__(self) -> None:
        self.begin_launch()

    def begin_launch(self) -> None:
        """No program has run."""
        self._granules: set[int] = set()
        self._told: list[Any] = []
        """Addresses that earlier programs stored to ahead of an atomic."""
        self._untold: list[Any] = []
        """The same with no atomic behind."""
        self._own: list[Any] = []
        self._own_told = 0
        self._has_asked = False
        self._inside = False

    def begin_program(self) -> None:
        """The next program; what the last one stored is another's from now on."""
        self._told += self._own[: self._own_told]
        self._untold += self._own[self._own_told :]
        self._granules.update(*map(_granules, self._own))
        self._own, self._own_told = [], 0
        self._has_asked = False

    @contextmanager
    def atomic(self) -> Iterator[None]:
        """The running program does an atomic operation; what it loads and stores itself is that."""
        self._own_told = len(self._own)
        self._has_asked = True
        inside, self._inside = self._inside, True
        try:
            yield
        finally:
            self._inside = inside

    def store(self, addresses: Any, mask: Any) -> None:
        """The running program stores without one."""
        if self._inside:
            return
        stored = addresses[mask.astype(bool)]
        if stored.size:
            self._own.append(stored)

    def load(self, addresses: Any, mask: Any) -> None:
        """The running program loads. Raises Race."""
        if self._inside or not self._granules or self._granules.isdisjoint(_granules(addresses)):
            return
        loaded = addresses[mask.astype(bool)]
        unsafe = self._untold if self._has_asked else [*self._untold, *self._told]
        stored = loaded[np.isin(loaded, np.concatenate(unsafe))] if unsafe else loaded[:0]
        if not np.isin(stored, np.concatenate(self._own) if self._own else []).all():
            raise Race("loads what another program of the launch stores, and may be ahead of it")


def _granules(addresses: Any) -> set[int]:
    if not addresses.size:
        return set()
    first, last = int(addresses.min()) >> GRANULE_BITS, int(addresses.max()) >> GRANULE_BITS
    return set(range(first, last + 1)) if last - first < 4096 else set()


METER = Meter()
"""This process's; it counts where `prepare_interpreter` was called."""
ORDER = Order()
"""The same of what programs of one launch have to do with each other."""


def prepare_interpreter() -> None:
    """Mend and speed up this process's interpreter, before any candidate is imported.

    Integer overflow is not checked, as on a GPU; that check is most of what the interpreter does.
    An autotuner takes its first configuration: no two can be timed here.
    """
    import triton.language as tl
    from triton.runtime import interpreter
    from triton.runtime.autotuner import Autotuner

    from kernel_profiling.estimate.interpreter import mend_interpreter

    mend_interpreter()
    interpreter.interpreter_builder.options = interpreter.InterpreterOptions(
        sanitize_overflow=False
    )
    slow = interpreter._get_np_dtype
    by_dtype = functools.cache(slow)
    interpreter._get_np_dtype = lambda dtype: (
        by_dtype(dtype) if type(dtype) is tl.dtype else slow(dtype)  # other types have no hash
    )
    _remember_shapes()
    _remember_types()
    _count_work()
    shorten_operations(METER.count)
    _watch_order(interpreter.InterpreterBuilder)
    Autotuner._bench = lambda self, *args, config, **kwargs: [float(self.configs.index(config))]


def _count_work() -> None:
    """Have launches, programs and operations counted by METER."""
    import torch
    from triton.runtime import interpreter

    executor, builder = interpreter.GridExecutor, interpreter.InterpreterBuilder
    launch, check = executor.__call__, interpreter.TensorHandle.__post_init__
    set_dimensions, set_index = builder.set_grid_dim, builder.set_grid_idx

    def counted_launch(self: Any, *args: Any, **kwargs: Any) -> Any:
        METER.launch(self, dict(zip(self.arg_names, args, strict=False)) | kwargs)
        with torch._C.DisableTorchFunction():  # to the interpreter tensors are where they are
            return launch(self, *args, **kwargs)

    def counted_dimensions(self: Any, x: int, y: int, z: int) -> None:
        METER.begin_grid(x * y * z)
        ORDER.begin_launch()
        set_dimensions(self, x, y, z)

    def counted_index(self: Any, x: int, y: int, z: int) -> None:
        METER.begin_program()
        ORDER.begin_program()
        set_index(self, x, y, z)

    def counted_value(self: Any) -> None:
        METER.count(self.data.size)
        check(self)

    executor.__call__ = counted_launch
    builder.set_grid_dim, builder.set_grid_idx = counted_dimensions, counted_index
    interpreter.TensorHandle.__post_init__ = counted_value


def _watch_order(builder: Any) -> None:
    load, store = builder.create_masked_load, builder.create_masked_store

    def watched_load(self: Any, ptrs: Any, mask: Any, *rest: Any, **named: Any) -> Any:
        ORDER.load(ptrs.data, mask.data)
        return load(self, ptrs, mask, *rest, **named)

    def watched_store(self: Any, ptrs: Any, value: Any, mask: Any, *rest: Any, **named: Any) -> Any:
        ORDER.store(ptrs.data, mask.data)
        return store(self, ptrs, value, mask, *rest, **named)

    def watched(atomic: Any) -> Any:
        def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            with ORDER.atomic():
                return atomic(self, *args, **kwargs)

        return run

    builder.create_masked_load, builder.create_masked_store = watched_load, watched_store
    for name in dir(builder):
        if name.startswith("create_atomic_"):
            setattr(builder, name, watched(getattr(builder, name)))


def _remember_shapes() -> None:
    """Have each shape of a block worked out once, not anew for every value that has it.

    Triton wraps and checks every dimension whenever it makes a value or a type, which is half of
    what an interpreted kernel does. What was worked out is copied; nothing changes it afterwards.
    """
    import triton.language as tl

    new_type, new_value = tl.block_type.__init__, tl.tensor.__init__
    types: dict[Any, dict[str, Any]] = {}
    values: dict[str, dict[str, Any]] = {}

    def init_type(self: Any, element_ty: Any, shape: Any) -> None:
        try:
            key = (element_ty.name, *(getattr(size, "value", size) for size in shape))
            known = types.get(key)
        except TypeError:  # not a shape: Triton has words for it
            new_type(self, element_ty, shape)
            return
        if known is None:
            new_type(self, element_ty, shape)
            types[key] = dict(vars(self))
        else:
            self.__dict__.update(known, element_ty=element_ty)

    def init_value(self: Any, handle: Any, type: Any) -> None:
        known = values.get(type.name)
        if known is None:
            new_value(self, handle, type)
            own = ("handle", "type")
            values[type.name] = {k: v for k, v in vars(self).items() if k not in own}
        else:
            self.__dict__.update(known, handle=handle, type=type)

    tl.block_type.__init__ = init_type
    tl.tensor.__init__ = init_value


def _remember_types() -> None:
    """Have the type that two operands are computed in worked out once, and nothing at all where
    they agree in type or shape: a quarter of what an interpreted kernel does."""
    import triton.language as tl
    from triton.language.semantic import TritonSemantic as Semantic

    block, is_equal = tl.block_type, tl.dtype.__eq__
    work_out, broadcast, cast = (
        Semantic.computation_type_impl,
        Semantic.broadcast_impl_value,
        Semantic.cast,
    )
    known: dict[Any, Any] = {}

    def computation_type(self: Any, a: Any, a_is_scalar: bool, b: Any, *rest: bool) -> Any:
        key = (a.name, a_is_scalar, b.name, *rest)
        if key not in known:
            known[key] = work_out(self, a, a_is_scalar, b, *rest)
        return known[key]

    def broadcast_values(self: Any, one: Any, other: Any) -> Any:
        a, b = one.type, other.type
        if type(a) is type(b) is block and a.shape.values == b.shape.values:
            return one, other
        return broadcast(self, one, other)

    def cast_value(self: Any, value: Any, dtype: Any, fp_downcast_rounding: Any = None) -> Any:
        if value.dtype is dtype:
            return value
        if fp_downcast_rounding is None and (value.dtype.name, dtype.name) in PLAIN_CASTS:
            kind = value.type.with_element_ty(dtype) if value.type.is_block() else dtype
            return tl.tensor(self.builder.cast_impl(value.handle, kind), kind)
        return cast(self, value, dtype, fp_downcast_rounding)

    tl.dtype.__eq__ = lambda self, other: self is other or is_equal(self, other)
    Semantic.computation_type_impl = computation_type
    Semantic.broadcast_impl_value = broadcast_values
    Semantic.cast = cast_value

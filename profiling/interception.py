"""Triton's interpreter with nothing behind it: launches and memory accesses are told, not done."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from profiling.interpreter import mend_interpreter
from profiling.tracer import Storages, Tracer

@contextmanager
def _intercepted(launches: list[LaunchTrace]) -> Iterator[None]:
    """Trace every launch instead of running it, and put everything back."""
    from triton.runtime import interpreter
    from triton.runtime.autotuner import Autotuner

    from profiling.interpreter import mend_interpreter

    mend_interpreter()
    storages = Storages()
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
    executor: Any, args: Any, kwargs: Any, storages: Storages, config: str | None
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
    "create_dot",
    "binary_op",
)


@contextmanager
def _memory(tracer: Tracer) -> Iterator[None]:
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

    def dot(self: Any, a: Any, b: Any, d: Any, *rest: Any) -> Any:
        tracer.spend(1 + d.data.size / 50_000)
        return interpreter.TensorHandle(d.data, d.dtype.scalar)

    def binary(self: Any, lhs: Any, rhs: Any, op: Any) -> Any:
        tracer.spend(1 + lhs.data.size / 50_000)
        return before["binary_op"](self, lhs, rhs, op)

    def narrow(data: Any, source: Any, target: Any, rounding: Any) -> Any:
        """Values do not matter here, and converting bit by bit is slow."""
        return np.zeros(data.shape, dtype=f"uint{target.primitive_bitwidth}")

    for name, stand_in in zip(_REPLACED, (load, store, update, exchange, dot, binary), strict=True):
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

"""Triton's interpreter with nothing behind it: launches and memory accesses are told, not done."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from kernel_profiling.compiler.fake_device import TargetDriver
from kernel_profiling.estimate.interpreter import counting_range, mend_interpreter
from kernel_profiling.estimate.tracer import Storages, Tracer

MOST_CONFIGS = 12
"""Configurations of one autotuner that are launched."""


@dataclass(frozen=True)
class InterpretedLaunch:
    """One launch, its arguments bound as the interpreter binds them."""

    function: Callable[..., None]
    """The kernel; called with `arguments` it interprets the program that was set."""
    arguments: dict[str, Any]
    grid: tuple[int, int, int]
    num_warps: int
    config: str | None
    """The autotuner's configuration."""
    storages: Storages
    share: float
    """Share (0..1) of the usual work that may go into it: there are other configurations."""


class _Launches:
    """Stands in for the interpreter's launches, and for the autotuner's."""

    def __init__(
        self, tell: Callable[[InterpretedLaunch], None], patch: Callable[[Any], Any]
    ) -> None:
        self.storages = Storages()
        self._tell = tell
        self._patch = patch
        self._scopes: dict[frozenset[str], Any] = {}
        self._config: str | None = None
        self._share = 1.0

    def patch_once(self, function: Any) -> Any:
        """A helper's call patches the language again each time, which is slow and never undone."""
        seen = function.__globals__.values()
        modules = {value.__name__ for value in seen if inspect.ismodule(value)}
        key = frozenset(name for name in modules if name.startswith("triton.language"))
        if key not in self._scopes:
            self._scopes[key] = self._patch(function)
        return self._scopes[key]

    def launch(self, executor: Any, args: Any, kwargs: Any) -> None:
        """Tell a launch, with its arguments bound."""
        self.patch_once(executor.fn)
        try:
            bound = _bind(executor, args, kwargs, self.storages)
            self._tell(replace(bound, config=self._config, share=self._share))
        finally:
            while self._scopes:
                self._scopes.popitem()[1].restore()

    def tune(self, tuner: Any, args: Any, kwargs: Any) -> Any:
        """An autotuned launch: one of each configuration."""
        tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
        result = None
        choices = list(tuner.prune_configs(kwargs))[:MOST_CONFIGS]
        self._share = min(1.0, 2 / len(choices))
        try:
            for choice in choices:
                self._config = str(choice)
                result = tuner.fn.run(*args, **kwargs, **choice.all_kwargs())
        finally:
            self._config, self._share = None, 1.0
        return result


@contextmanager
def intercepted_launches(
    tell: Callable[[InterpretedLaunch], None], target: TargetDriver
) -> Iterator[Storages]:
    """Every launch is told instead of run; tensors get addresses, `meta` ones too."""
    from triton.runtime import driver, interpreter
    from triton.runtime.autotuner import Autotuner

    mend_interpreter()
    executor = interpreter.GridExecutor
    convert, patch, execute = interpreter._implicit_cvt, interpreter._patch_lang, executor.__call__
    tune, active = Autotuner.run, driver._active
    launches = _Launches(tell, patch)

    def implicit_cvt(argument: Any) -> Any:
        value = convert(argument)
        if hasattr(argument, "untyped_storage"):
            value.handle.data[...] = launches.storages.address(argument)
        return value

    def launch(self: Any, *args: Any, **kwargs: Any) -> None:
        launches.launch(self, args, kwargs)

    def tuned(self: Any, *args: Any, **kwargs: Any) -> Any:
        return launches.tune(self, args, kwargs)

    interpreter._implicit_cvt, interpreter._patch_lang = implicit_cvt, launches.patch_once
    executor.__call__, Autotuner.run = launch, tuned
    driver.set_active(target)
    try:
        yield launches.storages
    finally:
        interpreter._implicit_cvt, interpreter._patch_lang = convert, patch
        executor.__call__, Autotuner.run = execute, tune
        driver._active = active


def _bind(executor: Any, args: Any, kwargs: Any, storages: Storages) -> InterpretedLaunch:
    from triton.runtime import interpreter

    known = inspect.getfullargspec(executor.fn).args
    named = {name: value for name, value in kwargs.items() if name in known}
    arguments = {
        name: value if name in executor.constexprs else interpreter._implicit_cvt(value)
        for name, value in inspect.getcallargs(executor.fn, *args, **named).items()
    }
    grid = executor.grid(arguments) if callable(executor.grid) else executor.grid
    x, y, z, *_ = (*(int(n) for n in grid), 1, 1)
    num_warps = int(kwargs.get("num_warps", 4))
    return InterpretedLaunch(executor.fn, arguments, (x, y, z), num_warps, None, storages, 1.0)


class _Builder:
    """What stands in for methods of the interpreter's builder; `self` there is `builder` here."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def methods(self) -> dict[str, Callable[..., Any]]:
        """Name of the builder's method -> stand-in."""
        return {
            "create_masked_load": self.load,
            "create_masked_store": self.store,
            "create_atomic_rmw": self.update,
            "create_atomic_cas": self.exchange,
            "create_dot": self.dot,
        }

    def _tell(self, kind: Any, pointers: Any, mask: Any) -> None:
        size = max(1, int(pointers.get_element_ty().primitive_bitwidth) // 8)
        allowed = mask.data if hasattr(mask, "get_element_ty") else mask
        self._tracer.access(kind, pointers.data, allowed, size)

    def load(self, builder: Any, ptrs: Any, mask: Any, other: Any, *_: Any, **__: Any) -> Any:
        """Tell a load; it gives zeros."""
        import numpy as np
        from triton.runtime import interpreter

        self._tell("load", ptrs, mask)
        kind = ptrs.get_element_ty()
        self._tracer.follows_data |= not kind.is_floating()
        zeros = np.zeros(ptrs.data.shape, dtype=interpreter._get_np_dtype(kind))
        return interpreter.TensorHandle(zeros, kind)

    def store(self, builder: Any, ptrs: Any, value: Any, mask: Any, *_: Any, **__: Any) -> None:
        """Tell a store; nothing is stored."""
        self._tell("store", ptrs, mask)

    def update(self, builder: Any, op: Any, ptr: Any, val: Any, mask: Any, *_: Any) -> Any:
        """Tell an atomic; zeros were there before."""
        import numpy as np
        from triton.runtime import interpreter

        self._tell("atomic", ptr, mask)
        self._tracer.follows_data |= not ptr.get_element_ty().is_floating()
        return interpreter.TensorHandle(np.zeros_like(val.data), val.dtype.scalar)

    def exchange(self, builder: Any, ptr: Any, cmp: Any, val: Any, *_: Any) -> Any:
        """Tell a compare-and-swap; what it expects was there before."""
        import numpy as np
        from triton.runtime import interpreter

        self._tell("atomic", ptr, True)
        self._tracer.follows_data = True
        return interpreter.TensorHandle(np.copy(cmp.data), cmp.dtype.scalar)

    def dot(self, builder: Any, a: Any, b: Any, d: Any, *_: Any) -> Any:
        """Give the accumulator: what a product adds does not matter here."""
        from triton.runtime import interpreter

        return interpreter.TensorHandle(d.data, d.dtype.scalar)


@contextmanager
def intercepted_memory(tracer: Tracer, names: dict[str, Any]) -> Iterator[None]:
    """Loads, stores and atomics tell the tracer and touch nothing; long loops are sampled.

    `names`: the kernel's globals, in which `range` is replaced.
    """
    from triton.runtime import interpreter

    builder = interpreter.InterpreterBuilder
    stand_ins = _Builder(tracer).methods()
    before = {name: getattr(builder, name) for name in stand_ins}
    options, convert = interpreter.interpreter_builder.options, interpreter._convert_float
    check = interpreter.TensorHandle.__post_init__

    def count(handle: Any) -> None:
        """Every operation makes one of these, so it is here that work is counted."""
        tracer.spend(1 + handle.data.size / 20_000)

    shadowed = {"range": names["range"]} if "range" in names else {}
    for name, stand_in in stand_ins.items():
        setattr(builder, name, _method(stand_in))
    names["range"] = tracer.range
    interpreter.range = tracer.range
    interpreter._convert_float = _zeros
    interpreter.TensorHandle.__post_init__ = count
    interpreter.interpreter_builder.options = replace(options, sanitize_overflow=False)
    try:
        yield
    finally:
        for name, function in before.items():
            setattr(builder, name, function)
        del names["range"]
        interpreter.range = counting_range
        names.update(shadowed)
        interpreter._convert_float = convert
        interpreter.TensorHandle.__post_init__ = check
        interpreter.interpreter_builder.options = options


def _method(function: Callable[..., Any]) -> Callable[..., Any]:
    """A plain function, which a class turns into a method; a bound method it would not."""

    def method(builder: Any, *args: Any, **kwargs: Any) -> Any:
        return function(builder, *args, **kwargs)

    return method


def _zeros(data: Any, source: Any, target: Any, rounding: Any) -> Any:
    """Stands in for the conversion of floats bit by bit: values do not matter, and it is slow."""
    import numpy as np

    return np.zeros(data.shape, dtype=f"uint{target.primitive_bitwidth}")

"""Triton's interpreter with nothing behind it: launches and accesses are recorded, not done."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from kernel_profiling.compiler.fake_device import TargetDriver, patched
from kernel_profiling.estimate.interpreter import mend_interpreter
from kernel_profiling.estimate.tracer import Storages, Tracer
from kernel_profiling.profile import AccessKind

MOST_CONFIGS = 12
"""Configurations of one autotuner that are launched."""


@dataclass(frozen=True)
class InterpretedLaunch:
    """One launch, its arguments bound as the interpreter binds them."""

    function: Callable[..., None]
    """The kernel; called with `arguments` it interprets the program that was set."""
    arguments: dict[str, Any]
    grid: tuple[int, int, int]
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
        from triton.runtime import interpreter

        function, grid = executor.fn, executor.grid
        self.patch_once(function)
        try:
            known = inspect.getfullargspec(function).args
            named = {name: value for name, value in kwargs.items() if name in known}
            arguments = {
                name: value if name in executor.constexprs else interpreter._implicit_cvt(value)
                for name, value in inspect.getcallargs(function, *args, **named).items()
            }
            sizes = grid(arguments) if callable(grid) else grid
            x, y, z, *_ = (*(int(n) for n in sizes), 1, 1)
            self._tell(
                InterpretedLaunch(
                    function, arguments, (x, y, z), self._config, self.storages, self._share
                )
            )
        finally:
            while self._scopes:
                self._scopes.popitem()[1].restore()

    def tune(self, tuner: Any, args: Any, kwargs: Any) -> Any:
        """An autotuned launch: one of each configuration."""
        tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
        result = None
        choices = list(tuner.prune_configs(kwargs))[:MOST_CONFIGS]
        self._share = min(1.0, 2 / len(choices))
        tuner.best_config = choices[0]  # which a caller may ask for
        try:
            for choice in choices:
                self._config = str(choice)
                if choice.pre_hook is not None:  # which may set blocks of descriptors
                    choice.pre_hook({**tuner.nargs, **kwargs, **choice.all_kwargs()})
                result = tuner.fn.run(*args, **kwargs, **choice.all_kwargs())
        finally:
            self._config, self._share = None, 1.0
        return result


@contextmanager
def intercepted_launches(
    tell: Callable[[InterpretedLaunch], None], target: TargetDriver
) -> Iterator[Storages]:
    """Every launch is recorded instead of run; tensors get addresses, `meta` ones too."""
    from triton.runtime import driver, interpreter
    from triton.runtime.autotuner import Autotuner

    mend_interpreter()
    convert = interpreter._implicit_cvt
    launches = _Launches(tell, interpreter._patch_lang)

    def implicit_cvt(argument: Any) -> Any:
        value = convert(argument)
        if hasattr(argument, "untyped_storage"):
            value.handle.data[...] = launches.storages.address(argument)
        return value

    def launch(executor: Any, *args: Any, **kwargs: Any) -> None:
        launches.launch(executor, args, kwargs)

    def tune(tuner: Any, *args: Any, **kwargs: Any) -> Any:
        return launches.tune(tuner, args, kwargs)

    with (
        patched(interpreter, {"_implicit_cvt": implicit_cvt, "_patch_lang": launches.patch_once}),
        patched(interpreter.GridExecutor, {"__call__": launch}),
        patched(Autotuner, {"run": tune}),
        patched(driver, {"_active": target}),
    ):
        yield launches.storages


def _stand_ins(tracer: Tracer) -> dict[str, Callable[..., Any]]:
    """Methods of the interpreter's builder that touch memory or take long -> what tells of it."""
    from triton.runtime import interpreter

    handle = interpreter.TensorHandle

    def tell(kind: AccessKind, pointers: Any, mask: Any) -> Any:
        element = pointers.get_element_ty()
        allowed = mask.data if hasattr(mask, "get_element_ty") else mask
        size = max(1, int(element.primitive_bitwidth) // 8)
        tracer.access(kind, pointers.data, allowed, size)
        if kind != "store":
            tracer.follows_data |= not element.is_floating()
        return element

    def load(self: Any, pointers: Any, mask: Any, *_: Any, **__: Any) -> Any:
        element = tell("load", pointers, mask)
        data_type = interpreter._get_np_dtype(element)
        return handle(np.zeros(pointers.data.shape, dtype=data_type), element)

    def store(self: Any, pointers: Any, value: Any, mask: Any, *_: Any, **__: Any) -> None:
        tell("store", pointers, mask)

    def update(self: Any, op: Any, pointers: Any, value: Any, mask: Any, *_: Any) -> Any:
        tell("atomic", pointers, mask)
        return handle(np.zeros_like(value.data), value.dtype.scalar)

    def exchange(self: Any, pointers: Any, expected: Any, *_: Any) -> Any:
        tell("atomic", pointers, True)
        tracer.follows_data = True
        return handle(np.copy(expected.data), expected.dtype.scalar)

    def dot(self: Any, a: Any, b: Any, total: Any, *_: Any) -> Any:
        # What a product adds does not matter here.
        return handle(total.data, total.dtype.scalar)

    def assembly(self: Any, text: Any, constraints: Any, values: Any, types: Any, *_: Any) -> Any:
        tracer.follows_data = True  # it may give addresses, and touch memory itself
        given = []
        for kind in types:
            shape = tuple(kind.shape) if kind.is_block() else (1,)
            zeros = np.zeros(shape, dtype=interpreter._get_np_dtype(kind.scalar))
            given.append(handle(zeros, kind.scalar))
        return SimpleNamespace(get_result=given.__getitem__)

    return {
        "create_inline_asm": assembly,
        "create_masked_load": load,
        "create_masked_store": store,
        "create_atomic_rmw": update,
        "create_atomic_cas": exchange,
        "create_dot": dot,
    }


@contextmanager
def intercepted_memory(tracer: Tracer, names: dict[str, Any]) -> Iterator[None]:
    """Loads, stores and atomics tell the tracer and touch nothing; long loops are sampled.

    `names`: the kernel's globals, in which `range` is replaced.
    """
    from triton.runtime import interpreter

    builder = interpreter.interpreter_builder

    def count(handle: Any) -> None:
        # Every operation makes one of these, so it is here that work is counted.
        tracer.spend(1 + handle.data.size / 20_000)

    def convert_float(data: Any, source: Any, target: Any, rounding: Any) -> Any:
        # Bit by bit it is slow, and values do not matter.
        return np.zeros(data.shape, dtype=f"uint{target.primitive_bitwidth}")

    shadowed = {"range": names["range"]} if "range" in names else {}
    names["range"] = tracer.range
    functions = {"range": tracer.range, "_convert_float": convert_float}
    try:
        with (
            patched(interpreter.InterpreterBuilder, _stand_ins(tracer)),
            patched(interpreter.TensorHandle, {"__post_init__": count}),
            patched(interpreter, functions),
            patched(builder, {"options": replace(builder.options, sanitize_overflow=False)}),
        ):
            yield
    finally:
        del names["range"]
        names.update(shadowed)

"""What the compiler knows of a call, with no GPU: every Triton launch compiled for a target."""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kernel_profiling.compiler.call_fingerprint import Deeds
from kernel_profiling.compiler.fake_device import TargetDriver, target_device
from kernel_profiling.compiler.launches import (
    CompiledLaunch,
    MachineCode,
    check_launch,
    describe,
    machine_code,
    profile_of,
    reason_failed,
)
from kernel_profiling.errors import CompileFailed
from kernel_profiling.gpus import Gpu
from kernel_profiling.profile import Profile

MOST_CONFIGS = 12
"""Configurations of one autotuner that are compiled, about half a second each."""
LIBRARY_OPS = re.compile(
    r"_*(mm|mv|dot|inner|bmm|add(mm|bmm|mv)|baddbmm|matmul|linear|bilinear|einsum|tensordot|conv\w*|"
    r"cudnn_\w+|linalg_\w+|scaled_\w+|(adaptive_)?(max|avg)_pool\w*|(native_|fused_)?(layer|group|"
    r"batch|instance|rms)_norm|(log_)?softmax)"
)
"""Torch operations that do a kernel's work in a library; under inference mode, composite ones are
met whole."""


def compile_call(call: Callable[[], object], gpu: Gpu) -> Profile:
    """Run a bound call on `meta` tensors; every Triton launch is compiled for `gpu`, none is run.

    An autotuned launch is compiled in every configuration (the first MOST_CONFIGS) and stands in
    the profile in the likely best: one that fits, spills least, loads widest, has occupancy enough
    to hide latency (a quarter suffices), and, among those alike, comes first. Work in torch
    operations is not seen; those that look like library compute are in `torch_operations`.
    Raises CompileFailed.

    The profile's fingerprint is what the call is to the GPU: in order, every launch (machine code,
    registers, shared memory, grid, arguments) and every torch operation with what it was given, and
    what is returned. Two calls in a row are looked at, since a host that keeps what it computed
    first does less the second time. Calls with one fingerprint differ at most in the host's own
    time. An autotuned call has none: which configuration runs is decided on the GPU.
    """
    recorder = _Recorder(gpu)
    with _recording(recorder), target_device(gpu), _watching(recorder.deeds) as library:
        try:
            recorder.deeds.end(call())
            launches = list(recorder.launches)  # a second call adds to them
            if not recorder.tuned:
                recorder.deeds.end(call())
        except CompileFailed:
            raise
        except Exception as error:
            raise CompileFailed(_explain(error, gpu)) from error
    nameless = recorder.tuned or not launches
    return profile_of(launches, gpu, library, None if nameless else recorder.deeds.fingerprint)


@dataclass
class _Recorder:
    """Collects launches while the candidate's host code runs."""

    gpu: Gpu
    launches: list[CompiledLaunch] = field(default_factory=list)
    codes: dict[str, MachineCode] = field(default_factory=dict)
    deeds: Deeds = field(default_factory=Deeds)
    tuned: bool = False
    """Whether an autotuner was met."""

    def launch(self, function: Any, run: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Stands in for JITFunction.run."""
        grid = kwargs.get("grid")
        warmup = kwargs.get("warmup", False)
        kernel = run(function, *args, **{**kwargs, "warmup": True})
        if hasattr(kernel, "result"):
            kernel = kernel.result()
        if warmup or kernel is None:
            return kernel
        bound = _bound(function, args, kwargs)
        asked = [int(n) for n in (grid(bound) if callable(grid) else grid)]
        x, y, z, *_ = (*asked, 1, 1)
        source_file = inspect.getsourcefile(function.fn) or function.fn.__code__.co_filename
        launch = CompiledLaunch(
            self._code(kernel, source_file),
            (x, y, z),
            tuple(f"{name}={self.deeds.tell(value)}" for name, value in bound.items()),
        )
        check_launch(launch, self.gpu)
        self.launches.append(launch)
        if not self.tuned:
            self.deeds.launch(launch.words)
        return kernel

    def tune(self, tuner: Any, args: Any, kwargs: Any) -> Any:
        """Stands in for Autotuner.run: compiles every configuration, keeps the likely best."""
        self.tuned = True
        tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
        configs = list(tuner.prune_configs(kwargs))[:MOST_CONFIGS]
        before = len(self.launches)
        tried: list[tuple[tuple[float, ...], Any, Any, list[CompiledLaunch]]] = []
        failure: Exception | None = None
        for index, config in enumerate(configs):
            try:
                if config.pre_hook is not None:
                    config.pre_hook({**tuner.nargs, **kwargs, **config.all_kwargs()})
                result = tuner.fn.run(*args, **kwargs, **config.all_kwargs())
            except Exception as error:  # noqa: BLE001 - a configuration that fails is passed over
                failure = error
                del self.launches[before:]
                continue
            found = [replace(met, config=str(config)) for met in self.launches[before:]]
            del self.launches[before:]
            tried.append(((*self._badness(found), index), config, result, found))
        if not tried:
            assert failure is not None
            raise failure
        _, config, result, found = min(tried, key=lambda item: item[0])
        self.launches += found
        tuner.nargs, tuner.best_config = None, config  # host code may go on to read it
        return result

    def _badness(self, found: list[CompiledLaunch]) -> tuple[float, ...]:
        launches = [describe(launch, self.gpu) for launch in found]
        return (
            sum(launch.spill_bytes or 0 for launch in launches),
            -min((min(launch.occupancy or 0, 0.25) for launch in launches), default=0),
            -min((launch.load_bits or 0 for launch in launches), default=0),
        )

    def _code(self, kernel: Any, source_file: str) -> MachineCode:
        key = hashlib.sha256(kernel.asm["cubin"]).hexdigest()
        if key not in self.codes:
            self.codes[key] = machine_code(kernel.metadata, kernel.asm, source_file)
        return self.codes[key]


def _bound(function: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    """The kernel's arguments by name, as a grid function gets them."""
    known = {name: value for name, value in kwargs.items() if name in function.arg_names}
    bound = inspect.signature(function.fn).bind_partial(*args, **known)
    bound.apply_defaults()
    return dict(bound.arguments)


@contextmanager
def _recording(recorder: _Recorder) -> Iterator[None]:
    """Put the recorder in the place of Triton's launches, and back."""
    from triton.runtime import driver
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.jit import JITFunction

    run, tune, active = JITFunction.run, Autotuner.run, driver._active

    def launch(self: Any, *args: Any, **kwargs: Any) -> Any:
        return recorder.launch(self, run, args, kwargs)

    def tuned(self: Any, *args: Any, **kwargs: Any) -> Any:
        return recorder.tune(self, args, kwargs)

    JITFunction.run, Autotuner.run = launch, tuned
    driver.set_active(TargetDriver(recorder.gpu))
    try:
        yield
    finally:
        JITFunction.run, Autotuner.run = run, tune
        driver._active = active


@contextmanager
def _watching(deeds: Deeds) -> Iterator[set[str]]:
    """Notes every torch operation; gives the names of those that do work in a library."""
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: set[str] = set()

    class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            name = func.overloadpacket.__name__
            if LIBRARY_OPS.fullmatch(name):
                seen.add(name)
            result = func(*args, **(kwargs or {}))
            deeds.operation(func, args, kwargs or {}, result)
            return result

    with Watch():  # type: ignore[no-untyped-call]
        yield seen


def _explain(error: Exception, gpu: Gpu) -> str:
    """One line on why a call did not compile, with the innermost cause."""
    said = reason_failed(error)
    if "CUDA" in said or "NVIDIA driver" in said:
        said += "; allocate on the inputs' device (x.device), not on 'cuda'"
    where = ""
    traceback = error.__traceback__
    while traceback is not None:
        frame = traceback.tb_frame
        if "kernel_function" in frame.f_code.co_name:
            where = (
                f" (called at line {traceback.tb_lineno} of {Path(frame.f_code.co_filename).name})"
            )
        traceback = traceback.tb_next
    return f"does not compile for {gpu.name}: {said}{where}"

"""Triton with a recorder in its launcher's place: kernels get as far as their IR, none runs."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from beamsearch.judge.capture import shadows
from beamsearch.judge.capture.recorder import Recorder, Refused, Touched
from beamsearch.judge.capture.standin import DEVICE, Memory, StandIn
from kernel_profiling.compiler.fake_device import TargetDriver, cuda_answers
from kernel_profiling.gpus import Gpu

_ENTRY = re.compile(r"tt\.func public @(\"[^\"]+\"|[\w.$-]+)")
MOST_CONFIGS = 64
"""Configurations of one autotuner that are captured; each is compiled and timed."""


@dataclass(eq=False)
class LaunchArguments(Touched):
    """A launch as it was met."""

    kernel: CapturedKernel
    grid: tuple[int, int, int]
    values: list[Any]
    """Flattened, constants left out."""
    named: dict[str, str]
    config: str | None

    def memories(self) -> list[Memory]:
        """Memory that its tensors and descriptors lie on."""
        found = []
        for value in self.values:
            base = getattr(value, "base", value)
            if isinstance(base, StandIn):
                found.append(base.memory)
        return found


@dataclass(frozen=True)
class CapturedKernel:
    """A Triton function specialised for a launch."""

    name: str
    ttir: str
    options: tuple[tuple[str, Any], ...]
    signature: tuple[str, ...]
    source_file: str


@dataclass
class Tuning:
    """What autotuners were met, and which configurations they are to choose."""

    pins: dict[str, str] = field(default_factory=dict)
    """Function -> configuration in words; the first for a function that is not here."""
    met: dict[str, list[str]] = field(default_factory=dict)
    """Function -> configurations after pruning."""
    chosen: str | None = None
    """Of the autotuned launch at hand."""


class CaptureDriver(TargetDriver):
    """Stands in for Triton's driver in a process that captures."""

    def __init__(self, gpu: Gpu) -> None:
        super().__init__(gpu)
        self.utils = SimpleNamespace(
            get_device_properties=self._properties, unload_module=lambda *_: None
        )
        self.launcher_cls = None

    def get_current_device(self) -> Any:
        """The number of the only device."""
        return 0

    def get_device_capability(self, device: object = None) -> tuple[int, int]:
        """The target's, as torch gives it."""
        return divmod(self._gpu.capability, 10)

    def get_active_torch_device(self) -> Any:
        """The device that tensors are made on."""
        return DEVICE

    def get_benchmarker(self) -> Any:
        """None: no time can be taken here."""
        raise Refused("times itself; leave that to triton.autotune")


def install(recorder: Recorder, tuning: Tuning, gpu: Gpu) -> None:
    """Put the recorder in the place of Triton's driver, compiler stages and autotuner, for good:
    this process does nothing else."""
    from triton import knobs
    from triton.backends.nvidia.compiler import CUDABackend
    from triton.compiler.compiler import CompiledKernel
    from triton.runtime import driver

    driver.set_active(CaptureDriver(gpu))
    knobs.compilation.always_compile = True  # what stops at the IR must not be found as finished
    whole = CUDABackend.add_stages
    backend: Any = CUDABackend
    backend.add_stages = _short_stages(whole)
    kernel: Any = CompiledKernel
    kernel._init_handles = _init_handles(recorder, tuning)
    finished = _Finished(whole)
    for name in ("n_regs", "n_spills", "n_max_threads"):
        setattr(kernel, name, property(lambda self, name=name: finished.fact(self, name)))  # type: ignore[misc]
    made = kernel.__init__

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **kwargs)
        if not finished.busy:
            self.metadata = _Metadata(self, finished)

    kernel.__init__ = init
    _pin_autotuners(tuning)


def _short_stages(whole: Any) -> Any:
    def add_stages(self: Any, stages: Any, options: Any, language: Any) -> None:
        whole(self, stages, options, language)
        if "ttir" not in stages:
            raise Refused("is written in Gluon; write it in triton.language")
        first = stages["ttir"]
        stages.clear()
        stages["ttir"] = first
        stages["cubin"] = _no_machine_code

    return add_stages


def _no_machine_code(module: Any, metadata: dict[str, Any]) -> bytes:
    """Stands in for the stages after the IR."""
    entry = _ENTRY.search(str(module))
    assert entry is not None
    metadata |= {"name": entry[1].strip('"'), "shared": 0}
    return b""


class _Metadata:
    """A kernel's metadata; what only the whole compilation tells has it done first."""

    def __init__(self, kernel: Any, finished: _Finished) -> None:
        self._known = kernel.metadata
        self._kernel = kernel
        self._finished = finished

    def __getattr__(self, name: str) -> Any:
        known = self.__dict__["_known"]
        if name != "shared" and hasattr(known, name):
            return getattr(known, name)
        return getattr(self._finished.compiled(self.__dict__["_kernel"]).metadata, name)


class _Finished:
    """Kernels compiled to the end, for host code that asks how many registers they take."""

    def __init__(self, stages: Any) -> None:
        self._stages = stages
        self._done: dict[int, Any] = {}
        self.busy = False

    def compiled(self, kernel: Any) -> Any:
        """The same kernel with its machine code."""
        from triton.backends.nvidia.compiler import CUDABackend
        from triton.compiler.compiler import compile as compile_source
        from triton.compiler.compiler import make_backend

        if id(kernel) not in self._done:
            known = kernel.metadata._known
            backend: Any = CUDABackend
            short, backend.add_stages = backend.add_stages, self._stages
            self.busy = True
            try:
                fields = make_backend(known.target).parse_options({}).__dict__
                options = {
                    name: _frozen(getattr(known, name)) for name in fields if name != "extern_libs"
                }
                self._done[id(kernel)] = compile_source(
                    kernel.src, target=known.target, options=options
                )
            finally:
                backend.add_stages, self.busy = short, False
        return self._done[id(kernel)]

    def fact(self, kernel: Any, name: str) -> int:
        """What the driver would say of loaded code."""
        from kernel_profiling.compiler.disassembly import disassemble

        if name == "n_max_threads":
            return 1024
        code = disassemble(self.compiled(kernel).asm["cubin"], {}, {})
        return code.registers if name == "n_regs" else code.stack_bytes // 4


def _init_handles(recorder: Recorder, tuning: Tuning) -> Any:
    def init_handles(self: Any) -> None:
        if self.module is None:
            self.module = self.function = self
            self._run = _Launcher(self, recorder, tuning)

    return init_handles


class _Launcher:
    """Stands in for a compiled kernel's launcher: notes what it is given."""

    def __init__(self, kernel: Any, recorder: Recorder, tuning: Tuning) -> None:
        self._signature = list(kernel.src.signature.items())
        self._recorder = recorder
        self._tuning = tuning
        self._kernel = CapturedKernel(
            name=kernel.name,
            ttir=kernel.asm["ttir"],
            options=_options(kernel.metadata._known),
            signature=tuple(kind for _, kind in _flat([kind for _, kind in self._signature])),
            source_file=_file_of(kernel),
        )

    def __call__(self, x: Any, y: Any, z: Any, *rest: Any) -> None:
        values = rest[6:]  # stream, function, metadata twice, hooks twice
        flat = _flat([kind for _, kind in self._signature], list(values))
        named = {
            name: _in_words(value) for (name, _), value in zip(self._signature, values, strict=True)
        }
        launch = LaunchArguments(
            kernel=self._kernel,
            grid=(int(x), int(y), int(z)),
            values=[self._checked(value, kind) for value, kind in flat],
            named=named,
            config=self._tuning.chosen,
        )
        self._recorder.note("launch", self._kernel.name, [launch])
        shadows.taken(launch.memories())

    def _checked(self, value: Any, kind: str) -> Any:
        if kind.startswith("*"):
            if isinstance(value, StandIn):
                return value
            raise self._recorder.refuse(
                f"passes {self._kernel.name} an address that is none of a tensor's"
            )
        if kind.startswith("tensordesc"):
            if isinstance(getattr(value, "base", None), StandIn):
                return value
            raise self._recorder.refuse(f"passes {self._kernel.name} a descriptor of no tensor")
        if isinstance(value, int) and value > 2**32 and self._recorder.memories.find(value):
            raise self._recorder.refuse(
                f"passes {self._kernel.name} an address as a number; pass the tensor"
            )
        return value


def _flat(kinds: Any, values: Any = None) -> list[tuple[Any, Any]]:
    """Parameters with tuples flattened and constants left out, as (value, kind)."""
    found: list[tuple[Any, Any]] = []
    for number, kind in enumerate(kinds):
        value = None if values is None else values[number]
        if isinstance(kind, tuple | list):
            found += _flat(kind, value)
        elif kind != "constexpr":
            found.append((value, kind))
    return found


def _options(metadata: Any) -> tuple[tuple[str, Any], ...]:
    """What the backend was asked for, by name."""
    from triton.compiler.compiler import make_backend

    fields = make_backend(metadata.target).parse_options({}).__dict__
    return tuple(
        (name, _frozen(getattr(metadata, name)))
        for name in sorted(fields)
        if hasattr(metadata, name)
    )


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


def _file_of(kernel: Any) -> str:
    code = getattr(getattr(kernel.src.fn, "fn", None), "__code__", None)
    return str(Path(code.co_filename)) if code is not None else ""


def _in_words(value: Any) -> str:
    """An argument as a person reads it."""
    if isinstance(value, StandIn):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    base = getattr(value, "base", None)
    if isinstance(base, StandIn):
        return f"descriptor of {_in_words(base)} by {list(value.block_shape)}"
    return str(value)


def _pin_autotuners(tuning: Tuning) -> None:
    """Have every autotuner choose what is pinned, and tell what else there was."""
    from triton.runtime.autotuner import Autotuner

    tuner: Any = Autotuner
    run, prune = tuner.run, tuner.prune_configs

    def prune_configs(self: Any, kwargs: Any) -> Any:
        configs = list(prune(self, kwargs))[:MOST_CONFIGS]
        name = self.base_fn.__name__
        known = tuning.met.setdefault(name, [])
        known += [text for text in map(str, configs) if text not in known]
        wanted = tuning.pins.get(name)
        return [config for config in configs if str(config) == wanted][:1] or configs[:1]

    def bench(self: Any, *args: Any, config: Any, **meta: Any) -> list[float]:
        return [0.0]

    def tuned(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.cache.clear()  # another call may pin another
        before, tuning.chosen = tuning.chosen, None
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        if len(self.configs) > 1:
            tuning.chosen = str(prune_configs(self, kwargs)[0])
        try:
            return run(self, *args, **kwargs)
        finally:
            tuning.chosen = before

    tuner.prune_configs, tuner._bench, tuner.run = prune_configs, bench, tuned


def install_torch(recorder: Recorder, gpu: Gpu) -> None:
    """Have `torch.cuda` answer as if the GPU were there, for good."""
    torch._C._ensureCUDADeviceGuardSet()

    def refused(what: str) -> Any:
        def refuse(*_: Any, **__: Any) -> Any:
            raise recorder.refuse(f"{what}; launch on the current stream, one after the other")

        return refuse

    answers = cuda_answers(gpu)
    for asked in ("Stream", "ExternalStream", "stream", "set_stream"):
        answers[asked] = refused("leaves the current stream")
    for asked in ("CUDAGraph", "graph", "make_graphed_callables"):
        answers[asked] = refused("makes a CUDA graph of its own")
    answers["Event"] = refused("takes times or waits")
    for asked, answer in answers.items():
        setattr(torch.cuda, asked, answer)

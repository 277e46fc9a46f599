"""Triton with a recorder in its launcher's place: kernels get as far as their IR, none runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import torch

from beamsearch.judge.capture import shadows
from beamsearch.judge.capture.compiling import frozen
from beamsearch.judge.capture.recorder import Recorder, Refused
from beamsearch.judge.capture.standin import DEVICE, StandIn, stand_ins
from beamsearch.records.plan import Kernel
from kernel_profiling.compiler.fake_device import TargetDriver, cuda_answers, patched
from kernel_profiling.gpus import Gpu

_ENTRY = re.compile(r"tt\.func public @(\"[^\"]+\"|[\w.$-]+)")
MOST_CONFIGS = 64
"""Configurations of one autotuner that are captured; each is compiled and timed."""


class CaptureDriver(TargetDriver):
    """Stands in for Triton's driver in a process that captures."""

    def __init__(self, gpu: Gpu) -> None:
        super().__init__(gpu)
        self.utils.unload_module = lambda *_: None

    def get_current_device(self) -> Any:
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


def install(recorder: Recorder, gpu: Gpu) -> None:
    """Put the recorder in the place of Triton's driver, compiler stages and launchers, for good:
    this process does nothing else."""
    from triton import knobs
    from triton.backends.nvidia.compiler import CUDABackend
    from triton.compiler.compiler import CompiledKernel
    from triton.runtime import driver
    from triton.runtime.autotuner import Autotuner

    driver.set_active(CaptureDriver(gpu))
    knobs.compilation.always_compile = True  # what stops at the IR must not be found as finished
    backend: Any = CUDABackend
    kernel: Any = CompiledKernel
    tuner: Any = Autotuner
    all_stages, made, run = backend.add_stages, kernel.__init__, tuner.run

    def add_stages(self: Any, stages: Any, options: Any, language: Any) -> None:
        all_stages(self, stages, options, language)
        if "ttir" not in stages:
            raise Refused("is written in Gluon; write it in triton.language")
        first = stages["ttir"]
        stages.clear()
        stages |= {"ttir": first, "cubin": _no_machine_code}

    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        made(self, *args, **kwargs)
        if not self.asm["cubin"]:
            self.metadata = _Metadata(self, all_stages)

    def init_handles(self: Any) -> None:
        if self.module is None:
            self.module = self.function = self
            self._run = _launcher(self, recorder)

    def tuned(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.cache.clear()  # another call may pin another
        before, recorder.chosen = recorder.chosen, None
        self.nargs = dict(zip(self.arg_names, args, strict=False))
        if len(self.configs) > 1:
            recorder.chosen = str(self.prune_configs(kwargs)[0])
        try:
            return run(self, *args, **kwargs)
        finally:
            recorder.chosen = before

    backend.add_stages, tuner.run = add_stages, tuned
    kernel.__init__, kernel._init_handles = init, init_handles
    kernel.n_max_threads = 1024
    kernel.n_regs = property(lambda self: self.metadata.code().registers)
    kernel.n_spills = property(lambda self: self.metadata.code().stack_bytes // 4)


def _no_machine_code(module: Any, metadata: dict[str, Any]) -> bytes:
    """Stands in for the stages after the IR."""
    entry = _ENTRY.search(str(module))
    assert entry is not None
    metadata |= {"name": entry[1].strip('"'), "shared": 0}
    return b""


class _Metadata:
    """A kernel's metadata; what only the whole compilation tells has it done first, for host code
    that asks how many registers a kernel takes."""

    def __init__(self, kernel: Any, all_stages: Any) -> None:
        self._known = kernel.metadata
        self._source = kernel.src
        self._all_stages = all_stages
        self._finished: Any = None

    def __getattr__(self, name: str) -> Any:
        if name != "shared" and hasattr(self._known, name):
            return getattr(self._known, name)
        return getattr(self._whole().metadata, name)

    def code(self) -> Any:
        """The machine code, read."""
        from kernel_profiling.compiler.disassembly import disassemble

        return disassemble(self._whole().asm["cubin"], {}, {})

    def _whole(self) -> Any:
        from triton.backends.nvidia.compiler import CUDABackend
        from triton.compiler.compiler import compile as compile_source

        if self._finished is None:
            options = _options(self._known)
            options.pop("extern_libs", None)
            with patched(CUDABackend, {"add_stages": self._all_stages}):
                target = self._known.target
                self._finished = compile_source(self._source, target=target, options=options)
        return self._finished


def _launcher(compiled: Any, recorder: Recorder) -> Callable[..., None]:
    """Stands in for a compiled kernel's launcher: notes what it is given."""
    kinds = list(compiled.src.signature.values())
    code = getattr(getattr(compiled.src.fn, "fn", None), "__code__", None)
    kernel = Kernel(
        name=compiled.name,
        ttir=compiled.asm["ttir"],
        options=_options(compiled.metadata._known),
        signature=[kind for _, kind in _flat(kinds)],
        source_file=code.co_filename if code is not None else "",
    )

    def checked(value: Any, kind: str) -> Any:
        wrong = ""
        if kind.startswith("*"):
            wrong = "" if isinstance(value, StandIn) else "an address that is none of a tensor's"
        elif kind.startswith("tensordesc"):
            known = isinstance(getattr(value, "base", None), StandIn)
            wrong = "" if known else "a descriptor of no tensor"
        elif isinstance(value, int) and value > 2**32 and recorder.holds(value):
            wrong = "an address as a number; pass the tensor"
        if wrong:
            raise recorder.refuse(f"passes {kernel.name} {wrong}")
        return value

    def launch(x: Any, y: Any, z: Any, *rest: Any) -> None:
        values = rest[6:]  # stream, function, metadata twice, hooks twice
        given = [checked(value, kind) for value, kind in _flat(kinds, values)]
        about = {
            "kernel": kernel,
            "grid": (int(x), int(y), int(z)),
            "named": dict(zip(compiled.src.signature, map(_in_words, values), strict=True)),
            "config": recorder.chosen,
        }
        recorder.note("launch", kernel.name, given, named=about)
        shadows.taken([tensor.memory for tensor in stand_ins(given)])

    return launch


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


def _options(metadata: Any) -> dict[str, Any]:
    from triton.compiler.compiler import make_backend

    fields = make_backend(metadata.target).parse_options({}).__dict__
    names = [name for name in sorted(fields) if hasattr(metadata, name)]
    return {name: frozen(getattr(metadata, name)) for name in names}


def _in_words(value: Any) -> str:
    if isinstance(value, StandIn):
        return f"{str(value.dtype).removeprefix('torch.')}{list(value.shape)}"
    base = getattr(value, "base", None)
    if isinstance(base, StandIn):
        return f"descriptor of {_in_words(base)} by {list(value.block_shape)}"
    return str(value)


def pin(pins: Mapping[str, str], met: dict[str, list[str]]) -> None:
    """Have autotuners choose these configurations, for good, without a time.

    `pins`: function -> its configuration in words; one that is not there takes its first. `met`
    gets function -> all configurations that could be chosen, after pruning.
    """
    from triton.runtime.autotuner import Autotuner

    tuner: Any = Autotuner
    prune = tuner.prune_configs

    def prune_configs(self: Any, kwargs: Any) -> Any:
        configs = list(prune(self, kwargs))[:MOST_CONFIGS]
        name = self.base_fn.__name__
        known = met.setdefault(name, [])
        known += [text for text in map(str, configs) if text not in known]
        return [*(c for c in configs if str(c) == pins.get(name)), *configs][:1]

    tuner.prune_configs, tuner._bench = prune_configs, lambda *_, **__: [0.0]


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

"""What the compiler knows of a call, with no GPU: every Triton launch compiled for a target."""

from __future__ import annotations

import hashlib
import inspect
import linecache
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from profiling.disassembly import Code, disassemble
from profiling.errors import ProfilingError
from profiling.gpus import Gpu
from profiling.identity import Deeds
from profiling.layout import LaneLayout, access_layouts
from profiling.occupancy import max_shared_bytes, occupancy
from profiling.profile import CodeRegion, Launch, LineCounters, Profile
from profiling.sass import INDEX_CLASSES, access_bits, instruction_class, is_division
from profiling.standin import TargetDriver, target_device
from profiling.statements import asm_lines, statement_starts

MOST_CONFIGS = 12
"""Configurations of one autotuner that are compiled, about half a second each."""
LIBRARY_OPS = re.compile(
    r"_*(mm|mv|dot|inner|bmm|add(mm|bmm|mv)|baddbmm|matmul|linear|bilinear|einsum|tensordot|conv\w*|"
    r"cudnn_\w+|linalg_\w+|scaled_\w+|(adaptive_)?(max|avg)_pool\w*|(native_|fused_)?(layer|group|"
    r"batch|instance|rms)_norm|(log_)?softmax)"
)
"""Torch operations that do a kernel's work in a library; under inference mode, composite ones are
met whole."""


class CompileFailed(ProfilingError):
    """A launch that does not compile for the target, or a call that fails on `meta` tensors."""


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
            launches = [recorder.finish(launch) for launch in recorder.launches]
            if not recorder.tuned:
                recorder.deeds.end(call())
        except CompileFailed:
            raise
        except Exception as error:
            raise CompileFailed(_explain(error, gpu)) from error
    return Profile(
        source="compiler",
        gpu=gpu.name,
        launches=launches,
        torch_operations=sorted(library),
        fingerprint=None if recorder.tuned or not launches else recorder.deeds.fingerprint,
    )


@dataclass
class _Compiled:
    """One launch as it was met."""

    kernel: Any
    """Triton's CompiledKernel."""
    grid: tuple[int, int, int]
    source_file: str
    arguments: list[str]
    config: str | None = None


@dataclass
class _Recorder:
    """Collects launches while the candidate's host code runs."""

    gpu: Gpu
    launches: list[_Compiled] = field(default_factory=list)
    codes: dict[str, Code] = field(default_factory=dict)
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
        sizes = (x, y, z)
        self._check(kernel, sizes)
        self.launches.append(
            _Compiled(
                kernel,
                sizes,
                inspect.getsourcefile(function.fn) or function.fn.__code__.co_filename,
                [f"{name}={self.deeds.tell(value)}" for name, value in bound.items()],
            )
        )
        if not self.tuned:
            self.deeds.launch(self._words(self.launches[-1]))
        return kernel

    def tune(self, tuner: Any, args: Any, kwargs: Any) -> Any:
        """Stands in for Autotuner.run: compiles every configuration, keeps the likely best."""
        self.tuned = True
        tuner.nargs = dict(zip(tuner.arg_names, args, strict=False))
        configs = list(tuner.prune_configs(kwargs))[:MOST_CONFIGS]
        before = len(self.launches)
        tried: list[tuple[tuple[float, ...], Any, Any, list[_Compiled]]] = []
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
            found = self.launches[before:]
            del self.launches[before:]
            for launch in found:
                launch.config = str(config)
            tried.append(((*self._badness(found), index), config, result, found))
        if not tried:
            assert failure is not None
            raise failure
        _, config, result, found = min(tried, key=lambda item: item[0])
        self.launches += found
        tuner.nargs, tuner.best_config = None, config  # host code may go on to read it
        return result

    def _badness(self, found: list[_Compiled]) -> tuple[float, ...]:
        launches = [self.finish(launch) for launch in found]
        return (
            sum(launch.spill_bytes or 0 for launch in launches),
            -min((min(launch.occupancy or 0, 0.25) for launch in launches), default=0),
            -min((launch.load_bits or 0 for launch in launches), default=0),
        )

    def _check(self, kernel: Any, grid: tuple[int, int, int]) -> None:
        """Raise CompileFailed for what a real launch would refuse."""
        metadata = kernel.metadata
        most = max_shared_bytes(self.gpu)
        if metadata.shared > most:
            raise CompileFailed(
                f"{kernel.name} needs {metadata.shared} bytes of shared memory a block, "
                f"{self.gpu.name} has {most}; use smaller blocks or fewer stages"
            )
        # CUDA's limits on a grid: 2^31 - 1 in x, 65535 in y and z.
        if grid[0] > 2**31 - 1 or max(grid[1:]) > 65535 or min(grid) < 0:
            raise CompileFailed(
                f"{kernel.name}: the grid {grid} exceeds (2147483647, 65535, 65535)"
            )

    def finish(self, launch: _Compiled) -> Launch:
        """The record of a launch."""
        return describe(launch, self._code(launch), self.gpu, self._words(launch))

    def _code(self, launch: _Compiled) -> Code:
        kernel = launch.kernel
        cubin = kernel.asm["cubin"]
        key = hashlib.sha256(cubin).hexdigest()
        if key not in self.codes:
            self.codes[key] = disassemble(
                cubin,
                statement_starts(launch.source_file),
                asm_lines(kernel.asm.get("ptx", "")),
            )
        return self.codes[key]

    def _words(self, launch: _Compiled) -> list[str]:
        """Everything that tells a launch from another one; names are nothing to the GPU."""
        code, metadata = self._code(launch), launch.kernel.metadata
        words = [code.text.replace(launch.kernel.name, "kernel"), str(launch.grid)]
        words += [str(metadata.num_warps * 32), str(metadata.shared), str(code.registers)]
        options = ("num_ctas", "launch_cooperative_grid", "launch_pdl")
        words += [str(getattr(metadata, name, None)) for name in options]
        return [*words, *launch.arguments]


def describe(launch: _Compiled, code: Code, gpu: Gpu, words: list[str]) -> Launch:
    """Everything the machine code says of one launch. `words` tell it from any other."""
    metadata = launch.kernel.metadata
    threads = metadata.num_warps * 32
    texts = [instruction.text for instruction in code.instructions]
    mix = Counter(instruction_class(text) for text in texts)
    share, limiter = occupancy(gpu, threads, code.registers, metadata.shared)
    if not share:
        raise CompileFailed(
            f"{launch.kernel.name} needs {code.registers} registers a thread for {threads} "
            f"threads, more than an SM of {gpu.name} has; use fewer warps"
        )
    name = launch.kernel.name
    local = mix.get("local", 0)
    layouts = access_layouts(
        launch.kernel.asm.get("ttgir", ""), statement_starts(launch.source_file)
    )
    return Launch(
        name=name,
        triton=True,
        grid=launch.grid,
        threads=threads,
        registers=code.registers,
        spill_bytes=code.stack_bytes if local else 0,
        shared_bytes=metadata.shared,
        occupancy=share,
        occupancy_limiter=limiter,
        num_stages=metadata.num_stages,
        load_bits=_widest(texts, "global_load"),
        store_bits=_widest(texts, "global_store"),
        matrix_instructions=mix.get("matrix", 0),
        instruction_mix=dict(sorted(mix.items())),
        lines=_lines(code, launch.source_file),
        regions=[_with_layouts(region, layouts) for region in code.regions],
        config=launch.config,
        fingerprint=hashlib.sha256("\n".join(words).encode()).hexdigest(),
    )


def _with_layouts(region: CodeRegion, layouts: dict[tuple[int, str], LaneLayout]) -> CodeRegion:
    accesses = []
    for access in region.accesses:
        layout = layouts.get((access.line, access.kind))
        known = {"fastest": layout.fastest, "lane_elements": layout.lane_elements} if layout else {}
        accesses.append(access.model_copy(update=known))
    return region.model_copy(update={"accesses": accesses})


def _widest(texts: list[str], kind: str) -> int | None:
    return max((access_bits(t) or 0 for t in texts if instruction_class(t) == kind), default=None)


def _lines(code: Code, source_file: str) -> list[LineCounters]:
    by_line: dict[int, list[str]] = {}
    for instruction in code.instructions:
        if instruction.line is not None:
            by_line.setdefault(instruction.line, []).append(instruction.text)
    total = len(code.instructions)
    return [
        LineCounters(
            line=line,
            text=linecache.getline(source_file, line).rstrip("\n"),
            instructions=len(texts),
            instruction_share=len(texts) / total,
            load_bits=_widest(texts, "global_load"),
            store_bits=_widest(texts, "global_store"),
            spill_instructions=sum(instruction_class(t) == "local" for t in texts),
            index_instructions=sum(instruction_class(t) in INDEX_CLASSES for t in texts),
            divisions=sum(is_division(t) for t in texts),
        )
        for line, texts in sorted(by_line.items())
    ]


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
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    said = " ".join(str(error).split()) or type(error).__name__
    if cause is not error and str(cause) and str(cause) not in str(error):
        said = f"{said} ({' '.join(str(cause).split())})"
    if len(said) > 700:
        said = f"{said[:250]} … {said[-420:]}"
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
    return f"does not compile for {gpu.name}: {type(error).__name__}: {said}{where}"

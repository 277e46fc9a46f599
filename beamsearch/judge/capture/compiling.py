"""A plan's kernels compiled again, in a process of ours that holds no candidate."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import io
import json
import os
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from beamsearch.errors import BeamsearchError
from beamsearch.records.plan import (
    Binary,
    Copy,
    Descriptor,
    Fill,
    Kernel,
    Launch,
    Operation,
    Plan,
    Pointer,
    View,
)
from beamsearch.records.record import Record
from kernel_profiling.compiler.launches import (
    CompiledLaunch,
    MachineCode,
    machine_code,
    profile_of,
    reason_failed,
)
from kernel_profiling.errors import CompileFailed, ProfilingError
from kernel_profiling.gpus import Gpu
from kernel_profiling.profile import Profile

OPTIONS = frozenset(
    (
        *("num_warps", "num_ctas", "num_stages", "maxnreg", "enable_fp_fusion"),
        *("enable_reflect_ftz", "sched4reg", "clc", "launch_cooperative_grid", "launch_pdl"),
        *("supported_fp8_dtypes", "deprecated_fp8_dot_operand_dtypes", "sanitize_overflow"),
        *("default_dot_input_precision", "allowed_dot_input_precisions"),
        "max_num_imprecise_acc_default",
    )
)
"""What a kernel may ask of the backend (Triton 3.6 to 3.9). The rest names files, programs or
flags of theirs, or adds instruments."""
MOST_SOURCE_BYTES = 4 << 20
"""Of a source file whose lines are read; a kernel's is far smaller."""
MOST_TENSOR_COLUMNS = 512
"""Tensor memory of a Blackwell SM, as Triton's own launch checks it."""
OF_COMPILATION = ("hash", "target", "triton_version")
"""Metadata that a compilation sets by itself."""

_ENTRY = re.compile(r"^\s*tt\.func public @\w+\(", re.MULTILINE)
"""How Triton writes a kernel; its parser crashes on a module without one."""


class Compiled(Record):
    """A plan's machine code, and what it says."""

    binaries: list[Binary]
    """In the order of the plan's kernels."""
    profile: Profile
    """Its fingerprint is comparable among those that were described alike."""


def compile_plan(plan: Plan, gpu: Gpu, *, brief: bool = False) -> Compiled:
    """Compile a plan's kernels for `gpu`, and describe its launches; `brief`: without their
    instructions.

    A fresh cache is used, so that nothing a candidate left on disk is taken for machine code.
    Raises CompileFailed for what does not compile or what `gpu` would refuse, BeamsearchError where
    this process is set up to compile otherwise than Triton does by itself.
    """
    from triton import knobs

    _check(plan, gpu)
    done: dict[str, Any] = {}
    codes: list[MachineCode] = []
    binaries: list[Binary] = []
    with tempfile.TemporaryDirectory() as folder, knobs.cache.scope():
        knobs.cache.dir = str(Path(folder) / "cache")
        for kernel in plan.kernels:
            key = json.dumps([kernel.ttir, kernel.options], sort_keys=True)
            if key not in done:
                done[key] = _compile(kernel, gpu, Path(folder))
            codes.append(_read(done[key], kernel, gpu, brief))
            binaries.append(_binary(done[key], codes[-1]))
    identity = Identity(plan)
    launches = []
    for step, words in zip(plan.steps, identity.steps, strict=True):
        if isinstance(step, Launch):
            x, y, z = step.grid
            launches.append(CompiledLaunch(codes[step.kernel], (x, y, z), words, step.config))
    fingerprint = identity.fingerprint([code.words for code in codes])
    operations = [step.name.split(".")[1] for step in plan.steps if isinstance(step, Operation)]
    return Compiled(binaries=binaries, profile=profile_of(launches, gpu, operations, fingerprint))


def _check(plan: Plan, gpu: Gpu) -> None:
    """Raise BeamsearchError for settings that change what Triton compiles, and CompileFailed for a
    plan that was made for something else."""
    import triton
    from triton import knobs

    settings = (knobs.compilation, knobs.language, knobs.nvidia, knobs.runtime)
    changed = [
        knob.key
        for group in settings
        for knob in group.knob_descriptors.values()
        if knob.key in os.environ
    ]
    changed += [name for group in settings for name in vars(group)]
    if changed:
        raise BeamsearchError(
            f"{', '.join(changed)} changes what Triton compiles; start the judge without it"
        )
    if plan.triton != triton.__version__:
        raise CompileFailed(
            f"the plan was made by Triton {plan.triton}, and Triton {triton.__version__} is "
            "installed; make it again"
        )
    if plan.capability != gpu.capability:
        raise CompileFailed(
            f"the plan was made for compute capability {plan.capability}, {gpu.name} has "
            f"{gpu.capability}; make it again"
        )


def _compile(kernel: Kernel, gpu: Gpu, folder: Path) -> Any:
    import triton
    from triton.backends.compiler import GPUTarget

    if not kernel.name.isidentifier():
        raise CompileFailed(f"{kernel.name!r} is no name of a kernel")
    target = GPUTarget("cuda", gpu.capability, 32)
    options = options_of(kernel, target)
    if len(_ENTRY.findall(kernel.ttir)) != 1:
        raise CompileFailed(f"{kernel.name} is not the IR of one Triton function")
    path = folder / f"{kernel.name}.ttir"
    path.write_text(kernel.ttir)
    try:
        # Triton prints what it could not assemble; a process that answers on its output must not.
        with contextlib.redirect_stdout(io.StringIO()):
            return triton.compile(str(path), target=target, options=options)
    except Exception as error:
        said = reason_failed(error)
        raise CompileFailed(f"{kernel.name} does not compile for {gpu.name}: {said}") from error


def options_of(kernel: Kernel, target: Any) -> dict[str, Any]:
    """A kernel's options, as far as they are of the list. Raises CompileFailed for another one that
    is not at its default."""
    from triton.compiler.compiler import make_backend

    usual = vars(make_backend(target).parse_options({"enable_fp_fusion": True}))
    for name, value in kernel.options.items():
        known = name in usual
        if not known or (name not in OPTIONS and frozen(value) != frozen(usual[name])):
            raise CompileFailed(
                f"{kernel.name} asks for {name}={value!r}, which is not among the options that a "
                f"kernel may have: {', '.join(sorted(OPTIONS & usual.keys()))}"
            )
    return {name: frozen(value) for name, value in kernel.options.items() if name in OPTIONS}


def frozen(value: Any) -> Any:
    """A value with tuples for lists, which JSON does not tell apart and Triton hashes."""
    return tuple(map(frozen, value)) if isinstance(value, list | tuple) else value


def _read(compiled: Any, kernel: Kernel, gpu: Gpu, brief: bool) -> MachineCode:
    metadata = compiled.metadata
    if metadata.profile_scratch_size:
        raise CompileFailed(f"{kernel.name} holds instruments, which is not allowed")
    if (metadata.tmem_size or 0) > MOST_TENSOR_COLUMNS:
        raise CompileFailed(
            f"{kernel.name} needs {metadata.tmem_size} columns of tensor memory, {gpu.name} has "
            f"{MOST_TENSOR_COLUMNS}; use smaller blocks or fewer stages"
        )
    # A plan may name any file, so one whose lines are read has to look like a source.
    path = Path(kernel.source_file)
    known = path.suffix == ".py" and path.is_file() and path.stat().st_size <= MOST_SOURCE_BYTES
    try:
        lines_of = str(path) if known else ""
        return machine_code(metadata, compiled.asm, lines_of, brief=brief)
    except ProfilingError as error:
        raise CompileFailed(f"{kernel.name}: {error}") from error


def _binary(compiled: Any, code: MachineCode) -> Binary:
    metadata = compiled.metadata
    told = json.loads(json.dumps(metadata._asdict(), default=vars))
    return Binary(
        name=metadata.name,
        cubin=base64.b64encode(compiled.asm["cubin"]),
        threads=code.threads,
        shared_bytes=code.shared_bytes,
        cluster=(code.cluster, 1, 1),
        cooperative=metadata.launch_cooperative_grid,
        dependent=metadata.launch_pdl,
        scratch_bytes=metadata.global_scratch_size,
        scratch_align=metadata.global_scratch_align,
        profile_bytes=metadata.profile_scratch_size,
        descriptors=metadata.tensordesc_meta or None,
        metadata={name: value for name, value in told.items() if name not in OF_COMPILATION},
    )


class Identity:
    """A plan in words that leave out what does nothing on the GPU.

    Buffers are numbered in the order in which they are first met, and stand at the end with their
    sizes and first contents; the plan's own numbers, lines, names and order of allocation are left
    out.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._order: dict[int, int] = {}
        self.steps = [self._step(step) for step in plan.steps]
        """Of each step; a launch's are what it is given."""
        results = list(map(self._words, plan.results))
        self._end = [f"returns {plan.container} {results}", *map(self._start, list(self._order))]

    def fingerprint(self, kernels: Sequence[Sequence[str]]) -> str:
        """One hash over all of it. `kernels`: in words, each of the plan's kernels as compiled."""
        return hashlib.sha256("\n\n".join(self.deeds(kernels)).encode()).hexdigest()

    def deeds(self, kernels: Sequence[Sequence[str]]) -> list[str]:
        """All of it in words: its steps, what it returns, and how its buffers begin."""
        deeds = []
        for step, words in zip(self._plan.steps, self.steps, strict=True):
            kernel = (*kernels[step.kernel], str(step.grid)) if isinstance(step, Launch) else ()
            deeds.append("\n".join((*kernel, *words)))
        return [*deeds, *self._end]

    def _step(self, step: Fill | Copy | Operation | Launch) -> tuple[str, ...]:
        if isinstance(step, Launch):
            return tuple(map(self._words, step.arguments))
        if isinstance(step, Fill):
            return (self._fill(step),)
        if isinstance(step, Copy):
            return (f"copy {self._words(step.source)} to {self._words(step.target)}",)
        given = list(map(self._words, step.arguments))
        named = [f"{name!r}={self._words(o)}" for name, o in sorted(step.named.items())]
        return (f"{step.name!r} of {given} {named} to {list(map(self._words, step.targets))}",)

    def _fill(self, fill: Fill) -> str:
        return f"fill {self._words(fill.target)} with {fill.value!r}"

    def _words(self, value: object) -> str:
        if isinstance(value, View):
            place = f"{self._buffer(value.buffer)}+{value.offset}"
            return f"{place} {value.dtype} {value.size} {value.stride}"
        if isinstance(value, Pointer):
            return f"{self._buffer(value.buffer)}+{value.offset} bytes"
        if isinstance(value, Descriptor):
            return f"{self._words(value.base)} {value.model_dump_json(exclude={'base'})}"
        if isinstance(value, list):
            return f"[{', '.join(map(self._words, value))}]"
        return repr(value)

    def _buffer(self, number: int) -> str:
        return f"buffer{self._order.setdefault(number, len(self._order))}"

    def _start(self, number: int) -> str:
        buffer = self._plan.buffers[number]
        data = None if buffer.data is None else hashlib.sha256(buffer.data).hexdigest()
        told = f"{buffer.role} {buffer.given} {buffer.bytes} {data}"
        return f"{self._buffer(number)}: {told} {list(map(self._fill, buffer.fills))}"

"""What a compiled launch is to a GPU: its machine code read, and whether the GPU would take it."""

from __future__ import annotations

import hashlib
import linecache
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernel_profiling.compiler.disassembly import Code, Instruction, disassemble, resources
from kernel_profiling.compiler.lane_layout import LaneLayout, access_layouts
from kernel_profiling.compiler.lowering import lowering
from kernel_profiling.compiler.occupancy import max_shared_bytes, occupancy
from kernel_profiling.compiler.sass import INDEX_CLASSES, is_division, widest
from kernel_profiling.compiler.statements import asm_lines, statement_starts
from kernel_profiling.errors import CompileFailed, one_line
from kernel_profiling.gpus import Gpu
from kernel_profiling.profile import CodeRegion, Launch, LineCounters, Profile

MOST_GRID = (2**31 - 1, 65535, 65535)
"""CUDA's limits on a grid."""
_DEBUG = re.compile(r"^\s*(?:\.loc|\.file|\$L__(?:tmp|func)\w*:).*\n|//.*$", re.MULTILINE)
MOST_THREADS = 1024
"""CUDA's limit on a block, on every GPU so far."""
_HOST_FACTS = (
    "num_ctas",
    "launch_cooperative_grid",
    "launch_pdl",
    "global_scratch_size",
    "tensordesc_meta",
)
"""Of Triton's metadata: what the host does at a launch beside what other facts tell."""


@dataclass(frozen=True)
class MachineCode:
    """A kernel as it was compiled, and what a launch of it takes."""

    name: str
    """The entry point."""
    code: Code
    threads: int
    """A block's, those that warp specialisation adds among them."""
    shared_bytes: int
    num_stages: int | None
    cluster: int
    """Blocks of a cluster."""
    ttgir: str
    """In Triton's GPU dialect, for how lanes lie over a block; may be empty."""
    source_file: str
    words: tuple[str, ...]
    """All that tells it from other machine code; names are nothing to the GPU."""

    def occupancy(self, gpu: Gpu) -> tuple[float, str]:
        """On this GPU (0..1), and what limits it."""
        return occupancy(gpu, self.threads, self.code.registers, self.shared_bytes)


@dataclass(frozen=True)
class CompiledLaunch:
    """One launch of a compiled kernel."""

    kernel: MachineCode
    grid: tuple[int, int, int]
    arguments: tuple[str, ...]
    """In words that are the same whenever the launch does the same."""
    config: str | None = None
    """The autotuner's configuration."""

    @property
    def words(self) -> list[str]:
        """Everything that tells this launch from another one."""
        return [*self.kernel.words, str(self.grid), *self.arguments]


def machine_code(
    metadata: Any, asm: Mapping[str, Any], source_file: str, *, brief: bool = False
) -> MachineCode:
    """What Triton compiled, read. `metadata`, `asm`: of its `CompiledKernel`. `brief`: what a
    launch takes, without the instructions, whose listing takes as long as the compilation.

    After compilation `num_warps` counts the warps of every partition of a warp-specialised kernel,
    and a block is launched with all of them (Triton 3.6 to 3.9, `make_llir` and the launcher).
    Raises ProfilingError where the machine code cannot be read.
    """
    if brief:
        code = Code([], [], *resources(asm["cubin"]))
        text = _without_lines(asm["ptx"])
    else:
        starts = statement_starts(source_file)
        code = disassemble(asm["cubin"], starts, asm_lines(asm.get("ptx", "")))
        text = code.text
    threads = metadata.num_warps * 32
    facts = [str(getattr(metadata, name, None)) for name in _HOST_FACTS]
    unnamed = re.sub(rf"(?<!\w){re.escape(metadata.name)}(?!\w)", "kernel", text)
    return MachineCode(
        name=metadata.name,
        code=code,
        threads=threads,
        shared_bytes=metadata.shared,
        num_stages=metadata.num_stages,
        cluster=metadata.num_ctas,
        ttgir=asm.get("ttgir", ""),
        source_file=source_file,
        words=(unnamed, str(threads), str(metadata.shared), str(code.registers), *facts),
    )


def _without_lines(ptx: str) -> str:
    """PTX without what only says which source line it is of."""
    return _DEBUG.sub("", ptx.partition("\t.section\t.debug")[0])


def _check(launch: CompiledLaunch, gpu: Gpu) -> None:
    kernel, grid = launch.kernel, launch.grid
    most = max_shared_bytes(gpu)
    if kernel.shared_bytes > most:
        raise CompileFailed(
            f"{kernel.name} needs {kernel.shared_bytes} bytes of shared memory a block, "
            f"{gpu.name} has {most}; use smaller blocks or fewer stages"
        )
    asked = (grid[0] * kernel.cluster, grid[1], grid[2])  # clusters lie along x
    if min(grid) < 0 or any(n > most for n, most in zip(asked, MOST_GRID, strict=True)):
        raise CompileFailed(f"{kernel.name}: the grid {grid} exceeds {MOST_GRID}")
    if kernel.threads > MOST_THREADS:
        raise CompileFailed(
            f"{kernel.name} has {kernel.threads} threads a block, CUDA allows {MOST_THREADS}; "
            "use fewer warps"
        )
    if not kernel.occupancy(gpu)[0]:
        raise CompileFailed(
            f"{kernel.name} needs {kernel.code.registers} registers a thread for {kernel.threads} "
            f"threads, more than an SM of {gpu.name} has; use fewer warps"
        )


def describe(launch: CompiledLaunch, gpu: Gpu) -> Launch:
    """Everything the machine code says of one launch. Raises CompileFailed for what a real
    launch would refuse."""
    _check(launch, gpu)
    kernel, code = launch.kernel, launch.kernel.code
    texts = [instruction.text for instruction in code.instructions]
    mix = Counter(instruction.kind for instruction in code.instructions)
    share, limiter = kernel.occupancy(gpu)
    starts = statement_starts(kernel.source_file)
    layouts = access_layouts(kernel.ttgir, starts)
    return Launch(
        name=kernel.name,
        triton=True,
        grid=launch.grid,
        threads=kernel.threads,
        registers=code.registers,
        spill_bytes=code.stack_bytes if mix.get("local", 0) or not mix else 0,
        shared_bytes=kernel.shared_bytes,
        occupancy=share,
        occupancy_limiter=limiter,
        num_stages=kernel.num_stages,
        load_bits=widest(texts, "global_load") if texts else None,
        store_bits=widest(texts, "global_store") if texts else None,
        matrix_instructions=mix.get("matrix", 0) if texts else None,
        instruction_mix=dict(sorted(mix.items())),
        lines=_lines(code, kernel.source_file),
        regions=[_with_layouts(region, layouts) for region in code.regions],
        lowering=lowering(kernel.ttgir, starts),
        config=launch.config,
        fingerprint=hashlib.sha256("\n".join(launch.words).encode()).hexdigest(),
    )


def profile_of(
    launches: Sequence[CompiledLaunch],
    gpu: Gpu,
    torch_operations: Iterable[str],
    fingerprint: str | None,
) -> Profile:
    """A call's profile by the compiler. Raises CompileFailed for a launch `gpu` would refuse."""
    return Profile(
        source="compiler",
        gpu=gpu.name,
        launches=[describe(launch, gpu) for launch in launches],
        torch_operations=sorted(set(torch_operations)),
        fingerprint=fingerprint,
    )


def reason_failed(error: BaseException) -> str:
    """One line on an error, with the innermost cause."""
    cause = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    said = str(error).strip() or type(error).__name__
    if str(cause) not in str(error):
        said = f"{said} ({str(cause).strip()})"
    return f"{type(error).__name__}: {one_line(said, 700)}"


def _with_layouts(region: CodeRegion, layouts: dict[tuple[int, str], LaneLayout]) -> CodeRegion:
    accesses = []
    for access in region.accesses:
        layout = layouts.get((access.line, access.kind))
        accesses.append(access.with_values(**(vars(layout) if layout else {})))
    return region.with_values(accesses=accesses)


def _lines(code: Code, source_file: str) -> list[LineCounters]:
    by_line: dict[int, list[Instruction]] = defaultdict(list)
    for instruction in code.instructions:
        if instruction.line is not None:
            by_line[instruction.line].append(instruction)
    lines = []
    for line, group in sorted(by_line.items()):
        texts, kinds = [i.text for i in group], Counter(i.kind for i in group)
        lines.append(
            LineCounters(
                line=line,
                text=linecache.getline(source_file, line).rstrip("\n"),
                instructions=len(group),
                instruction_share=len(group) / len(code.instructions),
                load_bits=widest(texts, "global_load"),
                store_bits=widest(texts, "global_store"),
                spill_instructions=kinds["local"],
                index_instructions=sum(kinds[kind] for kind in INDEX_CLASSES),
                divisions=sum(map(is_division, texts)),
            )
        )
    return lines

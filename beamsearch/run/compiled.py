"""First kernels from `torch.compile`: the reference compiled, its Triton code made into files."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from beamsearch.baselines.inductor.convert import convert
from beamsearch.baselines.inductor.generated import NotTriton
from beamsearch.executor.executor import Executor
from beamsearch.records.captured import Compilation
from beamsearch.records.job import CompileJob
from beamsearch.records.proposal import Proposal
from beamsearch.records.trace import recorded
from beamsearch.run.stop import StopToken

AUTHOR = "torch.compile"
CHOSEN = ("default",)
TUNED = ("default", "max_autotune")
"""As it chooses, and as it tunes."""
WITHOUT_LIBRARY = ("triton_only",)
"""For a reference that its own choice leaves to a library: minutes of tuning for a convolution, and
kernels that are slow then."""


def compiled_kernels(
    folder: Path, executor: Executor, problem: str, stop: StopToken, ways: Sequence[str]
) -> tuple[list[Proposal], list[str]]:
    """What the compiler wrote in these ways that is Triton alone, and why the rest is not.

    Every compilation is recorded in the folder, and not done again. Raises Stopped.
    """
    if not executor.measures:
        return [], ["torch.compile writes Triton for an NVIDIA GPU, and there is none here"]
    kernels: list[Proposal] = []
    reasons: list[str] = []

    def compiled(way: str) -> Compilation:
        def compile_() -> Compilation:
            done = executor.run(CompileJob(way=way))
            stop.check()
            return done

        return recorded(folder / f"{way}.json", Compilation, compile_)

    with ThreadPoolExecutor() as pool:  # one imports while the other has the GPU
        for compilation in pool.map(compiled, ways):
            way = compilation.way
            try:
                if compilation.captured is None:
                    raise NotTriton(compilation.reason)
                source = convert(compilation.captured, problem)
            except NotTriton as error:
                reasons.append(f"torch.compile ({way}): {error}")
            else:
                description = f"what torch.compile writes ({way})"
                kernels.append(Proposal(description=description, source=source, author=AUTHOR))
    return kernels, reasons

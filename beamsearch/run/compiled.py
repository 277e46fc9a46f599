"""First kernels from `torch.compile`: the reference compiled, its Triton code made into files."""

from __future__ import annotations

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
ITS_OWN = ("default", "max_autotune")
WITHOUT_LIBRARY = "triton_only"
"""For a reference that its own choice leaves to a library; up to a minute more."""


def compiled_kernels(
    folder: Path, executor: Executor, problem: str, stop: StopToken
) -> tuple[list[Proposal], list[str]]:
    """What the compiler wrote that is Triton alone, and why the rest is not.

    Every compilation is recorded in the folder, and not done again. Raises Stopped.
    """
    if not executor.measures:
        return [], ["torch.compile writes Triton for an NVIDIA GPU, and there is none here"]
    kernels: list[Proposal] = []
    reasons: list[str] = []
    for way in (*ITS_OWN, WITHOUT_LIBRARY):
        if way == WITHOUT_LIBRARY and kernels:
            break

        def compile_(way: str = way) -> Compilation:
            done = executor.run(CompileJob(way=way))
            stop.check()
            return done

        compilation = recorded(folder / f"{way}.json", Compilation, compile_)
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

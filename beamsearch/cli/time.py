"""`time PROBLEM KERNEL…`: kernels beside the input kernel and PyTorch, interleaved in one visit."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from beamsearch.cli.options import (
    BackwardOption,
    DeviceOption,
    DtypeOption,
    JsonOption,
    KernelBenchOption,
    PrecisionOption,
    ProblemArgument,
    ScaleOption,
    StrictNanOption,
    asked_problem,
)

if TYPE_CHECKING:
    from beamsearch.records.job import Comparison
    from beamsearch.records.measurement import Measurement
    from kernel_profiling.profile import Floor

KernelsArgument = Annotated[
    list[Path], typer.Argument(metavar="KERNEL...", help="Kernel files, the first the subject.")
]
TAKEN = ("input", "eager", "compile", "max_autotune", "max-autotune")
"""What stands beside the kernels, under these names."""


def time(
    problem: ProblemArgument,
    kernels: KernelsArgument,
    kernelbench: KernelBenchOption = None,
    scale: ScaleOption = None,
    json: JsonOption = False,
    dtype: DtypeOption = None,
    precision: PrecisionOption = None,
    backward: BackwardOption = None,
    device: DeviceOption = None,
    strict_nan: StrictNanOption = None,
) -> None:
    """Time kernels side by side with the input kernel, eager, torch.compile and max-autotune.

    Each kernel is verified first; then all take turns, and every ratio to the first kernel comes
    from turns taken together, with its 95% confidence interval. Exit code 1 where a kernel is not
    correct. Needs an NVIDIA GPU.
    """
    from beamsearch.errors import NoGpuError
    from beamsearch.gpu.environment import check_platform
    from beamsearch.gpu.machine import find_machine

    check_platform()
    machine = find_machine(device)
    found = asked_problem(problem, kernelbench, scale, dtype, precision, backward, json=json)
    if not machine.measures:
        raise NoGpuError(
            "time needs an NVIDIA GPU: a modelled time is no measurement; run it on a machine with "
            "one, or see with `verify` whether the kernel is correct and what the model says"
        )

    from beamsearch.baselines.floor import beaten_floor, measure_floor
    from beamsearch.cli.benchmark import Entry, compare
    from beamsearch.cli.verify import read_source
    from beamsearch.executor.opened import lane

    for path in kernels:
        read_source(path)  # an unreadable file ends it before anything is measured
    named: dict[str, Path | None] = {**named_kernels(kernels)}
    subject = next(iter(named))
    if found.input_kernel is not None and found.input_kernel.resolve() not in {
        path.resolve() for path in kernels
    }:
        named["input"] = found.input_kernel
    with lane(found, machine, strict_nan=bool(strict_nan)) as (executor, _):
        floor = measure_floor(found, machine)
        comparison = compare(Entry(found, named), executor)
        for taken in comparison.measurements.values():
            floor = beaten_floor(found, floor, taken, machine)
        gpu = executor.gpu
    if json:
        answer = as_json(found.name, gpu, subject, comparison, floor)
        typer.echo(json_module.dumps(answer | {"scaled": found.scaled}))
    else:
        typer.echo("\n".join(table(found.name, gpu, subject, comparison, floor)))
    if any(name in comparison.failed for name in named):
        raise typer.Exit(1)


def named_kernels(kernels: list[Path]) -> dict[str, Path]:
    """The kernels by their shortest name that is neither another's nor a baseline's."""
    named: dict[str, Path] = {}
    for path in kernels:
        full = str(path.resolve())
        names = (path.stem, path.name, str(path))
        named[next((n for n in names if n not in named and n not in TAKEN), full)] = path
    return named


def shown(name: str) -> str:
    """A subject's name as people write it."""
    return name.replace("max_autotune", "max-autotune")


def ratios(subject: str, comparison: Comparison) -> dict[str, Any]:
    """Each other subject's time over the first kernel's, from the turns they shared."""
    from beamsearch.search.pairs import paired

    own = comparison.turns.get(subject)
    if own is None:
        return {}
    return {
        name: paired(turns, own)
        for name, turns in comparison.turns.items()
        if name != subject and len(turns) == len(own)
    }


def table(problem: str, gpu: str, subject: str, comparison: Comparison, floor: Floor) -> list[str]:
    """One line a subject: median, 20th to 80th percentile, times the floor, and its ratio."""
    over = ratios(subject, comparison)
    lines = [f"{problem} on {gpu}, floor {floor.time_ms:.4g} ms"]
    lines += [f"  {floor.corrected}"] if floor.corrected else []
    width = max(len(shown(name)) for name in (*comparison.measurements, *comparison.failed))
    for name, taken in comparison.measurements.items():
        line = (
            f"  {shown(name):<{width}}  {taken.time_ms:8.4g} ms  "
            f"({taken.p20_ms:.4g} to {taken.p80_ms:.4g}, {taken.count} calls{plain(taken)})  "
            f"{taken.time_ms / floor.time_ms:6.2f}x the floor"
        )
        if name in over:
            ratio = over[name]
            line += (
                f"  {ratio.median:.3f}x [{ratio.low:.3f}, {ratio.high:.3f}] the time of {subject}"
            )
            line += ": a tie" if ratio.verdict == "tie" else f": {ratio.verdict}"
        lines.append(line)
    lines += [f"  {shown(name):<{width}}  {why}" for name, why in comparison.failed.items()]
    return lines


def plain(taken: Measurement) -> str:
    """What the same call takes without a CUDA graph, or that it could have none."""
    if taken.graph is False:
        return "; no graph"
    told = "" if taken.plain_ms is None else f"; {taken.plain_ms:.4g} without a graph"
    return told + ("" if taken.host_us is None else f"; {taken.host_us:.0f} us of Python")


def as_json(
    problem: str, gpu: str, subject: str, comparison: Comparison, floor: Floor
) -> dict[str, Any]:
    """Every number of the table."""
    from dataclasses import asdict

    return {
        "problem": problem,
        "gpu": gpu,
        "subject": subject,
        "floor_ms": floor.time_ms,
        "floor": floor.model_dump(mode="json"),
        "times": {
            name: taken.model_dump(mode="json") for name, taken in comparison.measurements.items()
        },
        "turns": comparison.turns,
        "over_subject": {
            name: asdict(ratio) | {"verdict": ratio.verdict}
            for name, ratio in ratios(subject, comparison).items()
        },
        "failed": comparison.failed,
    }

"""`new MODULE`: a problem of your own module or function."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from beamsearch.cli.options import DeviceOption, DtypeOption, TargetOption
from beamsearch.paths import command

if TYPE_CHECKING:
    from beamsearch.export.new_problem import Made
    from beamsearch.gpu.machine import Machine
    from beamsearch.records.job import Comparison

ModuleArgument = Annotated[
    str,
    typer.Argument(
        metavar="MODULE",
        help="my_model.py:MyBlock, or package.module:MyBlock: a class, a function of tensors, a "
        "module that is built, or a function without arguments that builds one.",
    ),
]


def new(
    module: ModuleArgument,
    input: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TENSOR",
            help='An input of forward, with dtype and shape: "x: bf16[8,2048,4096]", '
            '"index: i64[batch=8,128] < 32000", "k: 4". As often as it takes.',
        ),
    ] = None,
    init: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ARGUMENT",
            help='An argument of the class: dim=4096, or by position. It may call: "config='
            'transformers.LlamaConfig(hidden_size=4096)".',
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder to make. Default: problems/ and the name."),
    ] = None,
    dtype: DtypeOption = None,
    eval: Annotated[bool, typer.Option("--eval", help="End __init__ with self.eval().")] = False,
    target: TargetOption = None,
    device: DeviceOption = None,
) -> None:
    """Make a problem of your own PyTorch code, check that it runs, and say what it is worth.

    The problem imports the code where it is. It is run on shapes alone, at smaller sizes on the
    CPU, and at its own on the GPU where there is one.
    """
    from beamsearch.errors import UsageError
    from beamsearch.export.new_problem import make_problem, snake_case
    from beamsearch.gpu.machine import find_machine
    from beamsearch.records.trace import write_text

    machine = find_machine(device, target)
    folder = output or Path("problems") / snake_case(module.rpartition(":")[2].rpartition(".")[2])
    if folder.exists():
        raise UsageError(f"{folder} is there already; give another folder with --output")
    path = folder.resolve() / "problem.py"
    made = make_problem(module, input or [], init or [], path, dtype=dtype, evaluated=eval)
    write_text(path, made.problem.source)
    for line in [*described(made, folder), *valued(made, machine)]:
        typer.echo(line)
    first = "the first kernel is yours (--kernel FILE), a model's, or torch.compile's on a GPU"
    typer.echo(f"next: {command('run', folder)}; {first}")


def described(made: Made, folder: Path) -> list[str]:
    """What was written, and at which sizes it ran."""
    from beamsearch.problem.least_work import least_work
    from beamsearch.problem.shrink import integer_sizes

    work = least_work(made.problem)
    inputs = ", ".join(f"{name} {shape}" for name, shape in work.input_shapes.items())
    lines = [
        f"{folder / 'problem.py'}: {inputs} -> {work.output_shape}, {made.problem.dtype}",
        "it runs on shapes alone",
    ]
    if made.small is None:
        return [
            *lines,
            f"it was not run on the CPU, and cannot be verified there: {made.not_shrunk}",
        ]
    before = integer_sizes(made.problem)
    smaller = {name: size for name, size in made.small.sizes.items() if size != before[name]}
    small = ", ".join(f"{name}={size}" for name, size in smaller.items())
    return [lines[0], f"{lines[1]}, and on the CPU at {small or 'these sizes'}"]


def valued(made: Made, machine: Machine) -> list[str]:
    """Its audit; on a GPU its floor and what PyTorch takes there."""
    from beamsearch.cli.audit import told
    from beamsearch.suite.audits import audits

    (audit,) = audits([made.problem.path], machine.gpu)
    lines = [told(audit)]
    if not machine.measures:
        return [*lines, f"the floor is that of the {machine.gpu.name}'s datasheet: no GPU here"]
    from beamsearch.baselines.floor import measure_floor
    from beamsearch.executor.opened import lane
    from beamsearch.records.baselines import baseline_subjects
    from beamsearch.records.job import CompareJob

    floor = measure_floor(made.problem, machine)
    with lane(made.problem, machine) as (executor, _):
        comparison = executor.run(CompareJob(subjects=baseline_subjects()))
        return [*lines, f"on {executor.gpu}: floor {floor.time_ms:.4g} ms", *timed(comparison)]


def timed(comparison: Comparison) -> list[str]:
    """A line for each way in which PyTorch runs it."""
    from beamsearch.records.baselines import called

    lines = [f"    {called(name)}: {time}" for name, time in comparison.measurements.items()]
    return lines + [f"    {called(name)}: {why}" for name, why in comparison.failed.items()]

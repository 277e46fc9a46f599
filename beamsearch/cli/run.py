"""`run PROBLEM`: the main job."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from beamsearch.cli.options import (
    DeviceOption,
    DtypeOption,
    FloorMarginOption,
    JsonOption,
    MaxCallsOption,
    MaxCandidatesOption,
    MaxCostOption,
    MaxTokensOption,
    PatienceOption,
    PrecisionOption,
    ProblemArgument,
    SeedOption,
    StrictNanOption,
    TargetOption,
    TargetSpeedupOption,
    TimeLimitOption,
)
from beamsearch.errors import Stopped, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from beamsearch.records.run import RunRecord
    from beamsearch.run.observer import Observer


OutputOption = Annotated[
    Path | None,
    typer.Option(metavar="DIR", help="Folder of the run. Default: runs/<problem>/<date-time>."),
]
KernelOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="First kernel. Default: input_kernel.py of the problem."),
]
StrategyOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="beam (default), greedy, best-of-n or tree."),
]
RoundsOption = Annotated[int | None, typer.Option(metavar="N", help="Rounds. Default: 8.")]
WorkersOption = Annotated[
    int | None, typer.Option(metavar="N", help="Parallel workers a round. Default: 4.")
]
BeamOption = Annotated[
    int | None, typer.Option(metavar="K", help="Kernels kept after a round. Default: 2.")
]
VariantsOption = Annotated[
    int | None, typer.Option(metavar="V", help="Candidates a worker makes. Default: 2.")
]
ReviewOption = Annotated[
    bool | None,
    typer.Option("--review", help="Let the model look for errors before candidates are judged."),
]
TuneOption = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=0,
        help="Launch parameters and block sizes tried after a variant's win, with no model. "
        "Default: 12, without a GPU none.",
    ),
]
LlmOption = Annotated[
    str | None,
    typer.Option(
        metavar="WHO", help="Who thinks: auto (default), openai, playbook, batch or replay:RUN."
    ),
]
ModelOption = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="Model of the endpoint; several share, by NAME@WEIGHT."),
]
ModelChoiceOption = Annotated[
    str | None,
    typer.Option(metavar="HOW", help="Of several models: by weights (default), or bandit."),
]
LearnFromOption = Annotated[
    list[Path] | None,
    typer.Option(metavar="RUN", help="Folder of an earlier run to learn from; may be repeated."),
]
ConfigOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Settings in TOML; a flag wins over it.")
]


def run(
    problem: ProblemArgument,
    *,
    output: OutputOption = None,
    kernel: KernelOption = None,
    strategy: StrategyOption = None,
    rounds: RoundsOption = None,
    workers: WorkersOption = None,
    beam: BeamOption = None,
    variants: VariantsOption = None,
    tune: TuneOption = None,
    review: ReviewOption = None,
    strict_nan: StrictNanOption = None,
    seed: SeedOption = None,
    dtype: DtypeOption = None,
    precision: PrecisionOption = None,
    target: TargetOption = None,
    llm: LlmOption = None,
    model: ModelOption = None,
    model_choice: ModelChoiceOption = None,
    learn_from: LearnFromOption = None,
    patience: PatienceOption = None,
    target_speedup: TargetSpeedupOption = None,
    floor_margin: FloorMarginOption = None,
    max_candidates: MaxCandidatesOption = None,
    max_cost: MaxCostOption = None,
    max_tokens: MaxTokensOption = None,
    max_calls: MaxCallsOption = None,
    time_limit: TimeLimitOption = None,
    device: DeviceOption = None,
    config: ConfigOption = None,
    json: JsonOption = False,
) -> None:
    """Make a problem's kernel fast.

    Rounds of profile, diagnose, rewrite, judge, reflect; the best kernels stay in the beam. Uses
    the first NVIDIA GPU; with none, kernels are checked in Triton's interpreter and times are
    modelled. Asks the endpoint of OPENAI_BASE_URL / OPENAI_API_KEY; with none, a built-in playbook
    thinks. Started again on the same --output, it goes on where it stopped.
    """
    from beamsearch.gpu.environment import check_platform
    from beamsearch.settings import read_settings

    check_platform()
    flags = {
        "strategy": strategy,
        "rounds": rounds,
        "workers": workers,
        "beam": beam,
        "variants": variants,
        "tune": tune,
        "review": review,
        "strict_nan": strict_nan,
        "seed": seed,
        "dtype": dtype,
        "precision": precision,
        "target": target,
        "llm": llm,
        "model": model or None,
        "model_choice": model_choice,
        "learn_from": [str(folder) for folder in learn_from] if learn_from else None,
        "patience": patience,
        "target_speedup": target_speedup,
        "floor_margin": floor_margin,
        "max_candidates": max_candidates,
        "max_cost": max_cost,
        "max_tokens": max_tokens,
        "max_calls": max_calls,
        "time_limit": time_limit,
        "device": device,
    }
    settings = read_settings(config, flags)
    for earlier in settings.learn_from:
        if not (Path(earlier) / "run.json").is_file():
            raise UsageError(f"--learn-from {earlier}: no run.json there; give a run's folder")
    if output is not None and output.exists() and not output.is_dir():
        raise UsageError(f"--output {output} is a file; give a folder, new or of an earlier run")

    from beamsearch.problem.problem import find_problem
    from beamsearch.run import run as runner

    found = find_problem(problem)
    folder = output if output is not None else fresh_folder(found.name)
    observe(
        lambda observer: runner.run(found, settings, folder, kernel=kernel, observer=observer),
        folder,
        json,
    )


def fresh_folder(problem: str) -> Path:
    """`runs/<problem>/<date-time>`, not there yet."""
    now = datetime.datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    folder = Path("runs") / problem / now
    number = 1
    while folder.exists():
        number += 1
        folder = folder.with_name(f"{now}_{number}")
    return folder


def observe(job: Callable[[Observer], RunRecord], folder: Path, json: bool) -> None:
    """Do a run's job under a display; with `json`, end with its record on stdout.

    A run that was stopped prints its record too, and raises Stopped.
    """
    from beamsearch.cli.display import make_display

    display = make_display(json)
    try:
        record = job(display)
    except Stopped:
        display.close()
        if json and (folder / "run.json").is_file():
            from beamsearch.records.trace import Trace

            typer.echo(Trace(folder).run_record().model_dump_json())
        raise
    finally:
        display.close()
    if json:
        typer.echo(record.model_dump_json())

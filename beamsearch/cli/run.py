"""`run PROBLEM`: the main job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from beamsearch.cli.options import (
    JsonLinesOption,
    JsonOption,
    KernelBenchOption,
    ProblemArgument,
    ScaleOption,
    takes_settings,
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
ConfigOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Settings in TOML, with some that have no flag (docs/running.md): "
        "temperature, effort, prices. A flag wins over it.",
    ),
]


@takes_settings(
    *("strategy", "rounds", "workers", "beam", "variants", "repairs", "tune", "review"),
    *("strict_nan", "quick", "overlap", "seed", "dtype", "precision", "backward", "target"),
    *("llm", "model", "model_choice", "learn_from", "patience", "target_speedup", "floor_margin"),
    *("max_candidates", "max_cost", "max_tokens", "max_calls", "time_limit_s", "device"),
    *("gpus", "ray", "lanes"),
)
def run(
    problem: ProblemArgument,
    *,
    flags: dict[str, Any],
    output: OutputOption = None,
    kernel: KernelOption = None,
    config: ConfigOption = None,
    kernelbench: KernelBenchOption = None,
    scale: ScaleOption = None,
    json: JsonOption = False,
    json_lines: JsonLinesOption = False,
) -> None:
    """Make a problem's kernel fast.

    Rounds of profile, diagnose, rewrite, judge, reflect; the best kernels stay in the beam. Uses
    the first NVIDIA GPU; with none, kernels are checked in Triton's interpreter and times are
    modelled. Asks the endpoint of OPENAI_BASE_URL / OPENAI_API_KEY; with none, a built-in playbook
    thinks. Started again on the same --output, it goes on where it stopped.
    """
    from beamsearch.api.optimize import begin_server, check_asked, fresh_folder, search
    from beamsearch.gpu.environment import check_platform
    from beamsearch.settings import read_settings

    check_platform()
    one_form(json, json_lines)
    settings = read_settings(config, flags)
    check_asked(settings, kernel, output)
    begin_server(settings)

    from beamsearch.problem.problem import find_problem
    from beamsearch.problem.scale import at_scale

    found = at_scale(find_problem(problem, kernelbench), scale)
    folder = output if output is not None else fresh_folder(found.name)
    observe(
        lambda observer: search(
            found, settings, folder, kernel=kernel, observer=observer, scale=scale
        ),
        folder,
        json,
        json_lines,
    )


def one_form(json: bool, json_lines: bool) -> None:
    """Raise UsageError where two forms of output are asked for."""
    if json and json_lines:
        raise UsageError("--json and --json-lines: both would write on stdout; give one of them")


def observe(
    job: Callable[[Observer], RunRecord], folder: Path, json: bool, json_lines: bool
) -> None:
    """Do a run's job under a display; with `json`, end with its record on stdout.

    A run that was stopped prints its record too, and raises Stopped.
    """
    from beamsearch.cli.live import make_display

    display = make_display(json, json_lines)
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

"""`suite [PROBLEM]…`: many runs, one after another or several at once."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from beamsearch.cli.audit import ProblemsArgument
from beamsearch.cli.options import JsonOption, KernelBenchOption, takes_settings
from beamsearch.cli.run import ConfigOption
from beamsearch.errors import Stopped, UsageError, Waiting

if TYPE_CHECKING:
    from beamsearch.records.suite import Suite

AtOnceOption = Annotated[
    int | None,
    typer.Option(
        metavar="N", min=1, help="Runs at once. Default: one, with --gpus two on each GPU."
    ),
]


@takes_settings(
    *("strategy", "rounds", "workers", "beam", "variants", "tune", "review", "strict_nan"),
    *("quick", "overlap", "seed", "dtype", "precision", "backward", "target", "llm", "model"),
    *("model_choice", "learn_from", "patience", "target_speedup", "floor_margin"),
    *("max_candidates", "max_cost", "max_tokens", "max_calls", "time_limit_s", "device"),
    *("gpus", "ray", "lanes"),
)
def suite(
    problems: ProblemsArgument = None,
    *,
    flags: dict[str, Any],
    output: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Folder of the suite, one in it a problem.")
    ] = None,
    report: Annotated[
        bool, typer.Option("--report", help="Run nothing; report on the suite in DIR.")
    ] = False,
    config: ConfigOption = None,
    at_once: AtOnceOption = None,
    kernelbench: KernelBenchOption = None,
    json: JsonOption = False,
) -> None:
    """Run many problems, one after another or several at once, and report on all.

    Each is an ordinary run in its own folder of DIR, with these settings; --time-limit and
    --max-cost are for all together. However it was stopped, the same command goes on. Leaves
    results.csv and report.html. Exit code 1 where a problem failed.
    """
    folder = output or (Path(problems[0]) if report and problems and len(problems) == 1 else None)
    if folder is None:
        raise UsageError("say which folder: --output DIR")
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"--output {folder} is a file; give a folder, new or of an earlier suite")
    if report:
        _end(_reported(folder, json))
        return

    from beamsearch.gpu.environment import check_platform
    from beamsearch.settings import read_settings
    from beamsearch.suite.one_run import get_ready
    from beamsearch.suite.problems import files_of

    check_platform()
    settings = read_settings(config, flags)
    paths = files_of(problems or [], kernelbench)
    # Its start takes seconds; meanwhile this process imports the rest.
    get_ready(on_gpus=settings.gpus is not None)

    from beamsearch.cli.display import PlainDisplay
    from beamsearch.cli.suite_view import make_watcher
    from beamsearch.suite.runs import run_suite

    watcher = make_watcher(sys.stderr if json else sys.stdout, folder)
    try:
        with watcher:
            run_suite(
                folder,
                paths,
                settings,
                watcher=watcher,
                observer=PlainDisplay,
                at_once=at_once,
            )
    except Stopped:
        _reported(folder, json)
        raise
    _end(_reported(folder, json))


def _reported(folder: Path, json: bool) -> Suite:
    """Write the report's files, and print it."""
    from beamsearch.cli.suite_table import print_report
    from beamsearch.suite.report import make_report, write_report

    made = make_report(folder)
    write_report(folder, made)
    if json:
        typer.echo(made.model_dump_json())
    else:
        print_report(made, folder)
    return made.suite


def _end(made: Suite) -> None:
    """Raise Waiting where problems wait, and end with exit code 1 where one failed."""
    waiting = [entry for entry in made.entries if entry.state not in ("finished", "failed")]
    if waiting:
        first = waiting[0]
        more = f"; {len(waiting) - 1} more wait" if len(waiting) > 1 else ""
        raise Waiting(f"{first.name} {first.state}: {first.reason or 'its turn'}{more}")
    if any(entry.state == "failed" for entry in made.entries):
        raise typer.Exit(1)

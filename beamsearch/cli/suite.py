"""`suite [PROBLEM]…`: many runs, one after another."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from beamsearch.cli.audit import ProblemsArgument
from beamsearch.cli.options import JsonOption, KernelBenchOption, takes_settings
from beamsearch.cli.run import ConfigOption
from beamsearch.errors import Stopped, UsageError, Waiting

if TYPE_CHECKING:
    from beamsearch.records.suite import Entry, Suite
    from beamsearch.settings import Settings


@takes_settings(
    *("strategy", "rounds", "workers", "beam", "variants", "tune", "review", "strict_nan"),
    *("quick", "seed", "dtype", "precision", "backward", "target", "llm", "model"),
    *("model_choice", "learn_from", "patience", "target_speedup", "floor_margin"),
    *("max_candidates", "max_cost", "max_tokens", "max_calls", "time_limit_s", "device"),
    "gpus",
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
    kernelbench: KernelBenchOption = None,
    json: JsonOption = False,
) -> None:
    """Run many problems one after another, and report on all.

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

    check_platform()
    settings = read_settings(config, flags)

    from beamsearch.cli.display import PlainDisplay
    from beamsearch.suite.problems import files_of
    from beamsearch.suite.runs import run_suite

    paths = files_of(problems or [], kernelbench)
    watcher = Lines(sys.stderr if json else sys.stdout, folder)
    try:
        run_suite(folder, paths, settings, watcher=watcher, observer=PlainDisplay)
    except Stopped:
        _reported(folder, json)
        raise
    _end(_reported(folder, json))


class Lines:
    """A line when a problem begins, and one when it ends."""

    def __init__(self, stream: IO[str], folder: Path) -> None:
        self.stream = stream
        self.folder = folder

    def begins(self, number: int, count: int, entry: Entry, settings: Settings) -> None:
        """Print its name, and what it may take."""
        from beamsearch.report.numbers import clock

        limits = []
        if settings.time_limit_s is not None:
            limits.append(f"until {clock(settings.time_limit_s)} of its own time")
        if settings.max_cost is not None:
            limits.append(f"${settings.max_cost:.2f}")
        most = f", at most {' and '.join(limits)}" if limits else ""
        self.say(f"[{number}/{count}] {entry.name} begins{most}")

    def ended(self, number: int, count: int, entry: Entry) -> None:
        """Print how it ended."""
        from beamsearch.records.trace import Trace
        from beamsearch.report.numbers import clock, progress, tell

        told = entry.reason or ""
        if entry.state == "finished":
            record = Trace(self.folder / entry.name).run_record()
            told = f"{tell(progress(record))}; {record.stop_reason}"
        took = f" after {clock(entry.seconds)}" if entry.seconds else ""
        self.say(f"[{number}/{count}] {entry.name} {entry.state}{took}: {told}")

    def say(self, line: str) -> None:
        """Print a line."""
        self.stream.write(line + "\n")
        self.stream.flush()


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

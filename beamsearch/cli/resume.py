"""`resume RUN`: go on with a run from what is on disk."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import typer

from beamsearch.cli.options import JsonLinesOption, JsonOption, RunArgument, takes_settings


@takes_settings(
    *("rounds", "patience", "target_speedup", "floor_margin", "max_candidates", "time_limit_s"),
    *("max_cost", "max_tokens", "max_calls", "device", "gpus", "ray", "lanes"),
    defaults=False,
)
def resume(
    run: RunArgument,
    *,
    flags: dict[str, Any],
    json: JsonOption = False,
    json_lines: JsonLinesOption = False,
) -> None:
    """Go on with a stopped run.

    However it was stopped, it goes on from what is on disk; a finished run may be given more
    rounds, and any may go on on other GPUs of the same kind. Answers to a batch are read from
    `responses*.jsonl` in its folder. A packed run goes on in a folder of its own under runs/.
    """
    from beamsearch.gpu.environment import check_platform
    from beamsearch.run.place import begin_lanes
    from beamsearch.settings import parse_duration

    check_platform()
    if "ray" not in flags:
        begin_lanes(flags.get("device"), flags.get("gpus"))
    if "time_limit_s" in flags:
        flags["time_limit_s"] = parse_duration(flags["time_limit_s"])

    from beamsearch.cli.run import observe, one_form
    from beamsearch.run import run as runner

    one_form(json, json_lines)
    folder = unpacked(run)
    observe(
        lambda observer: runner.resume(folder, observer=observer, limits=flags),
        folder,
        json,
        json_lines,
    )


def unpacked(run: Path) -> Path:
    """The run's folder; of a packed run, a copy that may be written, and a word on where it is."""
    from beamsearch.api.optimize import fresh_folder
    from beamsearch.records.packed import opened_run

    there = opened_run(run)
    if there.folder == run:
        return run
    folder = fresh_folder(there.run_record().problem)
    shutil.copytree(there.folder, folder)
    typer.echo(f"{run} is packed; the run goes on in {folder}", err=True)
    return folder

"""`replay RUN`: a recorded run again, with its recorded replies."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from beamsearch.commands.options import JsonOption, RunArgument
from beamsearch.commands.run import OutputOption, fresh_folder

if TYPE_CHECKING:
    from beamsearch.records.run import RunRecord
    from beamsearch.replay import Comparison


def replay(run: RunArgument, output: OutputOption = None, json: JsonOption = False) -> None:
    """Run a recorded run again, with its recorded replies, on this machine's GPU or none.

    Says what came out differently: prompts, kernels, verdicts, beam, winner.
    """
    from beamsearch.display import make_display
    from beamsearch.environment import check_platform
    from beamsearch.records.trace import Trace
    from beamsearch.replay import compare
    from beamsearch.replay import replay as run_again

    check_platform()
    recorded = Trace(run)
    folder = output if output is not None else fresh_folder(recorded.run_record().problem)
    display = make_display(json)
    try:
        record = run_again(run, folder, observer=display)
    finally:
        display.close()
    compared = compare(recorded, Trace(folder))
    if json:
        told = {"folder": str(folder), **compared.model_dump(mode="json")}
        typer.echo(json_module.dumps(told))
        return
    for line in lines(record, compared, folder):
        typer.echo(line)


def lines(record: RunRecord, compared: Comparison, folder: Path) -> list[str]:
    """The comparison as a person reads it."""
    told = (
        f"{folder}: {compared.prompts} prompts and {compared.candidates} candidates stand in both "
        f"runs; best {record.best}"
    )
    if not compared.differences:
        return [told, "nothing came out differently"]
    different = [f"  {d.what}, {d.where}: {d.recorded} -> {d.now}" for d in compared.differences]
    return [told, f"{len(different)} differences (recorded -> now):", *different]

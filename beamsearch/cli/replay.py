"""`replay RUN`: a recorded run again, with its recorded replies."""

from __future__ import annotations

import json as json_module
from typing import TYPE_CHECKING, Any

import typer

from beamsearch.cli.options import JsonOption, RunArgument, takes_settings
from beamsearch.cli.run import OutputOption
from beamsearch.errors import BeamsearchError, EndpointError, KernelError, Stopped
from beamsearch.paths import command

if TYPE_CHECKING:
    from beamsearch.records.trace import Trace
    from beamsearch.run.replay import Comparison


@takes_settings("device", "gpus", "overlap", defaults=False)
def replay(
    run: RunArgument,
    *,
    flags: dict[str, Any],
    output: OutputOption = None,
    json: JsonOption = False,
) -> None:
    """Run a recorded run again, with its recorded replies, on this machine's GPUs or none.

    Says what came out differently: prompts, kernels, verdicts, beam, winner.
    """
    from beamsearch.api.optimize import fresh_folder
    from beamsearch.cli.live import make_display
    from beamsearch.gpu.environment import check_platform
    from beamsearch.records.packed import opened_run
    from beamsearch.records.trace import Trace
    from beamsearch.run.place import begin_lanes

    check_platform()
    begin_lanes(flags.get("device"), flags.get("gpus"))
    from beamsearch.run.replay import compare
    from beamsearch.run.replay import replay as run_again

    recorded = opened_run(run)
    folder = output if output is not None else fresh_folder(recorded.run_record().problem)
    display = make_display(json)
    now = Trace(folder)
    error: BeamsearchError | None = None
    try:
        run_again(run, folder, observer=display, places=flags)
    except Stopped as stopped:
        again = command("replay", run, "--output", folder)
        raise Stopped(f"stopped; go on with: {again}") from stopped
    except BeamsearchError as raised:
        error = raised
    finally:
        display.close()
    # No answer, or a kernel that is wrong here, may come of what is different.
    if error is None or (isinstance(error, EndpointError | KernelError) and now.run_file.is_file()):
        compared = compare(recorded, now)
        told = {"folder": str(folder), **compared.model_dump(mode="json")}
        for line in [json_module.dumps(told)] if json else lines(compared, now):
            typer.echo(line)
    if error is not None:
        raise error


def lines(compared: Comparison, now: Trace) -> list[str]:
    """The comparison as a person reads it."""
    told = (
        f"{now.folder}: {compared.prompts} prompts and {compared.candidates} candidates stand in "
        f"both runs; best {now.run_record().best}"
    )
    if not compared.differences:
        return [told, "nothing came out differently"]
    different = [f"  {d.what}, {d.where}: {d.recorded} -> {d.now}" for d in compared.differences]
    return [told, f"{len(different)} differences (recorded -> now):", *different]

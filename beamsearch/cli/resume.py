"""`resume RUN`: go on with a run from what is on disk."""

from __future__ import annotations

from typing import Any

from beamsearch.cli.options import JsonOption, RunArgument, takes_settings


@takes_settings(
    *("rounds", "patience", "target_speedup", "floor_margin", "max_candidates", "time_limit_s"),
    *("max_cost", "max_tokens", "max_calls"),
    defaults=False,
)
def resume(run: RunArgument, *, flags: dict[str, Any], json: JsonOption = False) -> None:
    """Go on with a stopped run.

    However it was stopped, it goes on from what is on disk; a finished run may be given more
    rounds. Answers to a batch are read from `responses*.jsonl` in its folder.
    """
    from beamsearch.gpu.environment import check_platform
    from beamsearch.settings import parse_duration

    check_platform()
    if "time_limit_s" in flags:
        flags["time_limit_s"] = parse_duration(flags["time_limit_s"])

    from beamsearch.cli.run import observe
    from beamsearch.run import run as runner

    observe(lambda observer: runner.resume(run, observer=observer, limits=flags), run, json)

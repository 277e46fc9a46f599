"""One bound call between the profiler's start and stop: `python -m beamsearch.judge.call SPEC`.

What Nsight Compute profiles: the same binding and mode as in verification and timing, on the
problem's own inputs from a public seed.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch

from beamsearch.judge.harness import call_mode, load_kernel
from beamsearch.judge.reference import read_problem_message
from beamsearch.kernel import bind
from beamsearch.problem import instantiate

WARMUPS = 2
"""Calls before the profiled one: the first compiles, tunes and allocates."""


def main(spec_file: str) -> None:
    """Wait for the GPU, build, bind, warm up, and call once with the profiler on."""
    spec = json.loads(Path(spec_file).read_text())
    if "go" in spec and not _my_turn(Path(spec["ready"]), Path(spec["go"])):
        return  # whoever wanted it is gone
    torch.cuda.set_device(spec["device"])
    problem = read_problem_message(spec["problem"])
    instance = instantiate(problem, f"cuda:{spec['device']}", spec["seed"])
    call = bind(load_kernel(spec["kernel"]), instance.arguments)
    with call_mode():
        for _ in range(WARMUPS):
            call()
        torch.cuda.synchronize()
        # The profiler saves and restores what memory there is, for each of its forty replays.
        torch.cuda.empty_cache()
        torch.cuda.profiler.start()  # type: ignore[no-untyped-call]
        call()
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]


def _my_turn(ready: Path, go: Path) -> bool:
    """Say that the GPU is wanted (see `profiling.ncu.Turn`); whether it was given."""
    pipe = os.open(go, os.O_RDONLY | os.O_NONBLOCK)  # opening waits for nobody, reading does
    os.set_blocking(pipe, True)
    ready.touch()
    try:
        return bool(os.read(pipe, 1))  # nothing where whoever wanted it is gone
    finally:
        os.close(pipe)


if __name__ == "__main__":
    main(sys.argv[1])

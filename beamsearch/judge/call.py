"""One bound call between the profiler's start and stop: `python -m beamsearch.judge.call SPEC`.

What Nsight Compute profiles: the same binding and mode as in verification and timing, on the
problem's own inputs from a public seed. With `READY GO` in place of the file, it stands by until
that is named (see `profiling.ncu.Turn`).
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import torch
import triton  # noqa: F401 - the kernel imports it, and this may stand by until it is named

from beamsearch.judge.harness import call_mode, load_kernel
from beamsearch.judge.reference import read_problem_message
from beamsearch.kernel import bind
from beamsearch.problem import instantiate

WARMUPS = 2
"""Calls before the profiled one: the first compiles, tunes and allocates."""


def main(arguments: list[str]) -> None:
    """Wait for the GPU, build, bind, warm up, and call once with the profiler on."""
    spec_file = arguments[0] if len(arguments) == 1 else asked(*map(Path, arguments))
    if not spec_file:
        return  # whoever might have asked is gone
    spec = json.loads(Path(spec_file).read_text())
    os.environ |= spec["env"]
    os.chdir(Path(spec["kernel"]).parent)
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


def asked(ready: Path, go: Path) -> str:
    """Say that all is imported, and wait for the GPU; the line that came with it, if any came."""
    pipe = os.open(go, os.O_RDONLY | os.O_NONBLOCK)  # opening waits for nobody, reading does
    os.set_blocking(pipe, True)
    ready.touch()
    with os.fdopen(pipe) as lines:
        return lines.readline().strip()


if __name__ == "__main__":
    main(sys.argv[1:])

"""One replayed call between the profiler's start and stop.

`python -m beamsearch.judge.nvidia_tools.call READY GO` makes it.

What Nsight Compute profiles and compute-sanitizer watches: the plan that was verified and timed, on
the problem's own inputs from a public seed, every buffer an allocation of its own. It stands by
until the file that tells what to call is named (see `kernel_profiling.ncu.run.Turn`), and ends with
whoever started it.
"""

import gc
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from beamsearch.gpu.driver import start_driver
from beamsearch.judge.arguments import storages_of
from beamsearch.judge.runner.launching import Loader
from beamsearch.judge.runner.program import PlanProgram
from beamsearch.judge.runner.reference import read_problem_message
from beamsearch.judge.sandbox.lifeline import end_with
from beamsearch.problem.instance import instantiate
from beamsearch.records.plan import Binary, Plan

WARMUPS = 2
"""Calls before the profiled one."""


def main(arguments: list[str]) -> None:
    """Wait for the GPU, call, and tell that it is free."""
    ready, go = map(Path, arguments)
    if spec_file := asked(ready, go):  # else whoever might have asked is gone
        call(json.loads(Path(spec_file).read_text()))
        torch.cuda.empty_cache()
        ready.unlink()
        gc.freeze()  # nothing is to be collected at the end, which takes a second


def call(spec: dict[str, Any]) -> None:
    """Build, bind, warm up, and call once with the profiler on."""
    device = f"cuda:{spec['device']}"
    torch.cuda.set_device(spec["device"])
    problem = read_problem_message(spec["problem"])
    given = [*storages_of(instantiate(problem, device, spec["seed"])).values()]
    loader = Loader()
    functions = [loader.load(Binary.model_validate(binary)) for binary in spec["binaries"]]
    program = PlanProgram(Plan.model_validate(spec["plan"]), functions, given, device, guard=0)
    for _ in range(WARMUPS):
        program.refresh(fresh=True)
        program.enqueue()
    program.refresh(fresh=True)
    torch.cuda.synchronize()
    # The profiler saves and restores what memory there is, for each of its replays.
    torch.cuda.empty_cache()
    torch.cuda.profiler.start()  # type: ignore[no-untyped-call]
    program.enqueue()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]


def asked(ready: Path, go: Path) -> str:
    """Say that all is imported, and wait for the GPU; the line that came with it, if any came.
    Whoever gives it has the profiler go on, which is stopped until then."""
    start_driver()
    pipe = os.open(go, os.O_RDONLY | os.O_NONBLOCK)  # opening waits for nobody, reading does
    os.set_blocking(pipe, True)
    stopped = list(profilers())
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    ready.touch()
    line = os.fdopen(pipe, closefd=False).readline().strip()
    if line:
        end_with(pipe)
    else:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    return line


def profilers() -> Iterator[int]:
    """Nsight Compute's processes that this one was started by. Version 2025.3 keeps a core busy
    while what it watches has started the driver and waits: twelve that stood by on 32 cores made
    what held the GPUs a tenth slower."""
    pid = os.getppid()
    while pid > 1 and os.getpgid(pid) == os.getpgrp():
        name, _, state = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
        if name == "ncu":
            yield pid
        pid = int(state.split()[1])


if __name__ == "__main__":
    main(sys.argv[1:])

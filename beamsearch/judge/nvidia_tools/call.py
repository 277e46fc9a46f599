"""One replayed call between the profiler's start and stop.

`python -m beamsearch.judge.nvidia_tools.call READY GO` makes it.

What Nsight Compute profiles and compute-sanitizer watches: the plan that was verified and timed, on
the problem's own inputs from a public seed, every buffer an allocation of its own. It stands by
until the file that tells what to call is named (see `kernel_profiling.ncu.run.Turn`), and ends with
whoever started it.
"""

import gc
import json
import sys
from pathlib import Path
from typing import Any

import torch

from beamsearch.gpu.driver import start_driver
from beamsearch.judge.arguments import storages_of
from beamsearch.judge.nvidia_tools.standing_by import asked
from beamsearch.judge.runner.launching import Loader
from beamsearch.judge.runner.program import PlanProgram
from beamsearch.judge.runner.reference import read_problem_message
from beamsearch.problem.instance import instantiate
from beamsearch.records.plan import Binary, Plan

WARMUPS = 2
"""Calls before the profiled one."""


def main(arguments: list[str]) -> None:
    """Wait for the GPU, call, and tell that it is free."""
    ready, go = map(Path, arguments)
    start_driver()
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


if __name__ == "__main__":
    main(sys.argv[1:])

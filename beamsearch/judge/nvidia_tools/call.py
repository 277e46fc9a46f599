"""One replayed call between the profiler's start and stop.

`python -m beamsearch.judge.nvidia_tools.call FOLDER` makes it.

What Nsight Compute profiles and compute-sanitizer watches: the plan that was verified and timed, on
the problem's own inputs from a public seed, every buffer an allocation of its own. It stands by
until the file that tells what to call is named (see `kernel_profiling.ncu.run.Turn`), takes a
context and loads the kernels, waits for its turn, and ends with whoever started it.
"""

import gc
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from beamsearch.gpu.driver import start_driver
from beamsearch.judge.arguments import storages_of
from beamsearch.judge.nvidia_tools.standing_by import StandingBy
from beamsearch.judge.runner.launching import Function, Loader
from beamsearch.judge.runner.program import PlanProgram
from beamsearch.judge.runner.reference import read_problem_message
from beamsearch.problem.instance import instantiate
from beamsearch.problem.problem import load_module
from beamsearch.records.plan import Binary, Plan

WARMUPS = 2
"""Calls before the profiled one."""


def main(arguments: list[str]) -> None:
    """Wait for the GPU, call, and tell that it is free."""
    standing_by = StandingBy(Path(arguments[0]))
    start_driver()
    if not (spec_file := standing_by.told()):
        return  # whoever might have told it is gone
    spec = json.loads(Path(spec_file).read_text())
    functions = load(spec)
    if standing_by.has_turn():
        call(spec, functions)
        torch.cuda.empty_cache()
        standing_by.done()
        gc.freeze()  # nothing is to be collected at the end, which takes a second


def load(spec: dict[str, Any]) -> list[Function]:
    """The kernels on the GPU, which is hardly used for that."""
    torch.cuda.set_device(spec["device"])
    torch.cuda.synchronize()  # a context is there then
    load_module(read_problem_message(spec["problem"]))
    loader = Loader()
    return [loader.load(Binary.model_validate(binary)) for binary in spec["binaries"]]


def call(spec: dict[str, Any], functions: Sequence[Function]) -> None:
    """Bind, warm up, and call once with the profiler on."""
    device = f"cuda:{spec['device']}"
    problem = read_problem_message(spec["problem"])
    given = [*storages_of(instantiate(problem, device, spec["seed"])).values()]
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

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
from types import ModuleType

import torch
from triton.runtime.autotuner import Autotuner, Heuristics

from beamsearch.judge.harness import call_mode, load_kernel
from beamsearch.judge.profiling_run import CONFIGS
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
    module = load_kernel(spec["kernel"])
    call = bind(module, instance.arguments)
    with call_mode():
        for _ in range(WARMUPS):
            call()
        torch.cuda.synchronize()
        configs = {name: str(tuner.best_config) for name, tuner in autotuners(module).items()}
        Path(spec_file).with_name(CONFIGS).write_text(json.dumps(configs))
        # The profiler saves and restores what memory there is, for each of its forty replays.
        torch.cuda.empty_cache()
        torch.cuda.profiler.start()  # type: ignore[no-untyped-call]
        call()
        torch.cuda.synchronize()
        torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]


def autotuners(module: ModuleType) -> dict[str, Autotuner]:
    """Those of a kernel file that have chosen, by the names of the functions they tune."""
    found = {}
    for value in vars(module).values():
        tuner = value
        while isinstance(tuner, Heuristics):
            tuner = tuner.fn
        if isinstance(tuner, Autotuner) and hasattr(tuner, "best_config"):
            found[tuner.base_fn.__name__] = tuner
    return found


def asked(ready: Path, go: Path) -> str:
    """Say that all is imported, and wait for the GPU; the line that came with it, if any came."""
    pipe = os.open(go, os.O_RDONLY | os.O_NONBLOCK)  # opening waits for nobody, reading does
    os.set_blocking(pipe, True)
    ready.touch()
    with os.fdopen(pipe) as lines:
        return lines.readline().strip()


if __name__ == "__main__":
    main(sys.argv[1:])

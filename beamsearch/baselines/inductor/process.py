"""The compiler's process: started, waited for, and its answer read."""

from __future__ import annotations

import json
import subprocess
import sys

from pydantic import ValidationError

from beamsearch.gpu.lane import Lane
from beamsearch.judge.rejection import one_line
from beamsearch.judge.runner.reference import problem_message
from beamsearch.judge.sandbox.clean_environment import scrubbed_environment
from beamsearch.judge.timing.measure import baseline_caches
from beamsearch.problem.problem import Problem
from beamsearch.records.captured import Compilation

COMPILE_S = 600.0
"""Seconds one way of compiling may take; tuning convolution templates took 72 s on an H200."""


def compile_reference(problem: Problem, way: str, device: int, gpu_uuid: str) -> Compilation:
    """Compile the reference on a GPU in a process of its own, in one of `capture.WAYS`.

    Whatever goes wrong there is the compilation's reason. Takes the GPU's lane: tuning is timing.
    """
    command = [sys.executable, "-m", "beamsearch.baselines.inductor.capture", way, f"cuda:{device}"]
    with Lane(gpu_uuid).held():
        try:
            done = subprocess.run(
                command,
                input=json.dumps(problem_message(problem)),
                env=scrubbed_environment() | baseline_caches(),
                capture_output=True,
                text=True,
                timeout=COMPILE_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Compilation(way=way, reason=f"it took more than {COMPILE_S:.0f} s")
    try:
        return Compilation.model_validate_json(done.stdout)
    except ValidationError:
        last = done.stderr.strip().rpartition("\n")[2]
        return Compilation(
            way=way, reason=f"its process ended ({done.returncode}): {one_line(last)}"
        )

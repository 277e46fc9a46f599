"""What a problem's reference gives away, examined once for each problem, and kept.

`python -m beamsearch.baselines.redundant_work SPEC DEVICE` examines in a process of its own, so
that no other holds the GPU for it, and prints the record.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from beamsearch.baselines.cache import keep, read_kept
from beamsearch.gpu.environment import cache_folder, devices
from beamsearch.gpu.lane import Lane
from beamsearch.gpu.usage import Usage
from beamsearch.judge.runner.reference import problem_message, read_problem_message
from beamsearch.judge.sandbox.clean_environment import scrubbed_environment
from beamsearch.problem.instance import instantiate
from beamsearch.problem.problem import Problem
from beamsearch.problem.shrink import shrink

if TYPE_CHECKING:
    from kernel_profiling.floor.redundant_work import Draw
    from kernel_profiling.profile import GivesAway

TIMEOUT_S = 120.0
"""Some dozen draws of the largest problems take seconds on a GPU, and of shrunk ones on a CPU."""
SHRUNK_ELEMENTS = 1 << 18
"""Elements without a GPU: enough that edges weigh little, few enough for seconds."""


def gives_away(problem: Problem, device: int | None, usage: Usage | None = None) -> GivesAway:
    """What the reference gives away: at its true shapes on a GPU, at shrunk ones without.

    Where it cannot be examined, the record says why; a floor stands without it.
    """
    from kernel_profiling.profile import GivesAway

    spec = json.dumps(problem_message(problem), sort_keys=True)
    digest = hashlib.sha256(f"{device is None}/{spec}".encode()).hexdigest()[:24]
    path = cache_folder() / "giveaways" / f"{digest}.json"
    kept = read_kept(path, GivesAway)
    if kept is not None:
        return kept
    place = "cpu" if device is None else f"cuda:{device}"
    lane = nullcontext() if device is None else Lane(devices()[device].uuid, usage=usage).held()
    try:
        with lane:
            done = subprocess.run(
                [sys.executable, "-m", "beamsearch.baselines.redundant_work", spec, place],
                env=scrubbed_environment(),
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
            )
    except subprocess.TimeoutExpired:
        return GivesAway(failed=f"it took over {TIMEOUT_S:.0f} s")
    if done.returncode != 0:
        return GivesAway(failed=(done.stderr.strip().splitlines() or ["no message"])[-1])
    found = GivesAway.model_validate_json(done.stdout.splitlines()[-1])
    keep(path, found)
    return found


def examine_reference(problem: Problem, device: str) -> GivesAway:
    """What the reference gives away, on this device at its true shapes, on the CPU at shrunk ones.

    Raises ProblemError where its shapes cannot be shrunk, and what the reference raises.
    """
    from kernel_profiling.floor.redundant_work import examine

    true_shapes = device != "cpu"
    examined = problem if true_shapes else shrink(problem, SHRUNK_ELEMENTS)
    return examine(lambda number: _draw(examined, device, number), true_shapes=true_shapes)


def _draw(problem: Problem, device: str, number: int) -> Draw:
    """The first inputs are the problem's own, the others standard normal, of either sign."""
    import torch

    from beamsearch.judge.verification.oracle import as_outputs
    from kernel_profiling.floor.redundant_work import OWN_DRAWS, Draw

    instance = instantiate(problem, device, number, "own" if number < OWN_DRAWS else "normal")
    inputs = zip(instance.arguments.forward, instance.inputs, strict=True)
    tensors: dict[str, Any] = {n: v for n, v in inputs if isinstance(v, torch.Tensor)}
    tensors |= instance.arguments.state
    return Draw(lambda: as_outputs(instance.model(*instance.inputs)), tensors)


if __name__ == "__main__":
    asked, place = sys.argv[1:]
    sys.stdout.write(
        examine_reference(read_problem_message(json.loads(asked)), place).model_dump_json() + "\n"
    )

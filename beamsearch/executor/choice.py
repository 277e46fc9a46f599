"""Which executor a run has: one lane in this process, or several, each with a process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from beamsearch.executor.client import LaneSpec
from beamsearch.executor.lane_client import LaneProcess
from beamsearch.executor.lanes import Lanes
from beamsearch.executor.local import LocalExecutor
from beamsearch.gpu.usage import Usage
from beamsearch.problem.problem import Problem

if TYPE_CHECKING:
    from beamsearch.executor.executor import Executor
    from beamsearch.gpu.machine import Machine


def open_executor(
    problem: Problem,
    machines: Sequence[Machine],
    *,
    scratch: Path,
    seed: int,
    profiler: Literal["auto", "compiler"],
    strict_nan: bool,
    usage: Usage,
    tell: Callable[[str], None],
) -> Executor:
    """The executor over these GPUs of this machine, all of one kind; of one alone, this process.

    A lane elsewhere would be another `open_lane` of `Lanes`, given the same `LaneSpec`. `tell`
    takes what people should know of lanes that die. Raises BeamsearchError.
    """
    first = machines[0]
    if len(machines) == 1:
        return LocalExecutor(
            problem,
            machine=first,
            scratch=scratch,
            seed=seed,
            profiler=profiler,
            strict_nan=strict_nan,
            usage=usage,
        )
    specs = [
        LaneSpec.of(
            problem,
            machine,
            scratch / f"lane-{number}",
            name=f"lane {number}" if machine.uuid is None else f"{machine.device}: {machine.uuid}",
            seed=seed,
            profiler=profiler,
            strict_nan=strict_nan,
            shared_by=len(machines),
        )
        for number, machine in enumerate(machines)
    ]
    return Lanes(
        specs, LaneProcess, gpu=first.name, measures=first.measures, usage=usage, tell=tell
    )

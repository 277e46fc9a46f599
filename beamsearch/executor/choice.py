"""Which executor a run has: one lane in this process, or several, each with a process, here or on a
cluster."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from beamsearch.executor.client import GIVEN, LaneClient, LaneSpec
from beamsearch.executor.lane_client import LaneProcess
from beamsearch.executor.lanes import Lanes
from beamsearch.executor.local import LocalExecutor
from beamsearch.gpu.usage import Usage
from beamsearch.problem.problem import Problem

if TYPE_CHECKING:
    from beamsearch.executor.cluster import Cluster, Met
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
    cluster: Cluster | None = None,
    lanes: int | None = None,
    met: Met = lambda node, uuid: None,
    beside: int = 1,
) -> Executor:
    """The executor over these GPUs of this machine, all of one kind; of the first alone, this
    process, whose threads all mean it where they name no GPU.
    Where there is a cluster, it is over `lanes` of it, by default all that there is room for.

    `tell` takes what people should know of lanes that die, `met` the nodes that they begin on.
    `beside`: runs of this machine at once, which share its cores. Raises BeamsearchError.
    """
    first = machines[0]
    common: dict[str, Any] = {"seed": seed, "profiler": profiler, "strict_nan": strict_nan}
    if cluster is not None:
        machines = [first] * (lanes or cluster.count())
    elif len(machines) == 1 and first.device in (None, 0):
        return LocalExecutor(
            problem,
            machine=first,
            scratch=scratch,
            usage=usage,
            shared_by=beside,
            **common,
        )
    shared = _shared(scratch) if cluster is None else ""
    specs = [
        LaneSpec.of(
            problem,
            machine,
            scratch / f"lane-{number}",
            name=f"lane {number}" if machine.uuid is None else f"{machine.device}: {machine.uuid}",
            gpu_uuid=GIVEN if machine.elsewhere is not None else machine.uuid,
            shared=shared,
            shared_by=len(machines) * beside,
            **common,
        )
        for number, machine in enumerate(machines)
    ]
    return Lanes(
        specs,
        LaneProcess if cluster is None else on_cluster(cluster, met, tell),
        gpu=first.name,
        measures=first.measures,
        usage=usage,
        share=bool(shared),
        tell=tell,
        at_end=cluster.close if cluster is not None else lambda: None,
    )


def _shared(scratch: Path) -> str:
    """A new folder, for this user alone."""
    scratch.mkdir(parents=True, exist_ok=True)
    return tempfile.mkdtemp(dir=scratch, prefix="shared-")


def on_cluster(
    cluster: Cluster, met: Met, tell: Callable[[str], None]
) -> Callable[[LaneSpec], LaneClient]:
    """What begins a lane on a cluster."""
    from beamsearch.executor.ray_lane import RayLane

    return partial(RayLane, cluster=cluster, met=met, tell=tell)

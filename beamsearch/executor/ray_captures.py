"""Capture and compilation as tasks of Ray, on whichever machine has cores to spare."""

from __future__ import annotations

import traceback
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from beamsearch.executor.client import GIVEN, LaneSpec
from beamsearch.executor.node_folder import hidden_here, own_folder
from beamsearch.records.record import Record
from kernel_profiling.gpus import Gpu

if TYPE_CHECKING:
    from collections.abc import Sequence

    from beamsearch.judge.capture.forms import Captured

LIMIT_S = 120.0
"""What a task may take, the wait for a core too; the lane itself captures what takes longer."""
_here: dict[str, Any] = {}
"""What captures for the run that this process last worked for."""


class CaptureSpec(Record):
    """What a run's kernels are captured for: the same on each of its lanes."""

    lane: LaneSpec
    """Any of them, without what is its own."""
    gpu: Gpu

    @classmethod
    def of(cls, lane: LaneSpec, gpu: Gpu) -> CaptureSpec:
        """For a lane and the others of its run."""
        folders = [f for f in Path(lane.scratch).parents if f.name == ".scratch"]
        own = {"name": "captures", "scratch": str(folders[0] if folders else lane.scratch)}
        uuid = None if lane.gpu_uuid is None else GIVEN
        return cls(lane=lane.with_values(**own, gpu_uuid=uuid, shared_by=1, hidden=[]), gpu=gpu)


class RayCaptures:
    """Captures a lane's kernels elsewhere. Called from the lane's threads."""

    def __init__(self, spec: LaneSpec, avoided: Sequence[str], gpu: Gpu) -> None:
        """`avoided`: machines that are not as the run's, by Ray's ids."""
        import ray

        self._ray: Any = ray
        self._told = CaptureSpec.of(spec, gpu).model_dump_json()
        options: dict[str, Any] = {"num_cpus": 1, "max_retries": 1}
        options["scheduling_strategy"] = "SPREAD"
        if avoided:
            options["label_selector"] = {"ray.io/node-id": f"!in({','.join(avoided)})"}
        self._task = ray.remote(**options)(capture)

    def __call__(self, source: str) -> tuple[Captured, str] | None:
        """What came of a source, and the path of its file there; none where no core is idle, or
        where the task was lost, twice, or took too long: that may be the candidate's doing, which
        is the lane's to find out."""
        if self._ray.available_resources().get("CPU", 0.0) < 1:
            return None
        asked = self._task.remote(self._told, source)
        try:
            found: tuple[Captured, str] = self._ray.get(asked, timeout=LIMIT_S)
        except self._ray.exceptions.RayError as error:
            if isinstance(error, self._ray.exceptions.RayTaskError):
                traceback.print_exception(error)  # a lost fork server, or a fault of ours
            self._ray.cancel(asked, force=True)
            return None
        return found


def capture(told: str, source: str) -> tuple[Captured, str]:
    """The task: a source captured and compiled for a run's GPUs, on a machine that may have none.
    What it needs stays for the next one."""
    from beamsearch.judge.sources import source_key, write_source

    if told not in _here:
        for captures, servers, *_ in _here.values():
            servers.close()
            captures.close()
        _here.clear()
        _here[told] = _begun(CaptureSpec.model_validate_json(told))
    captures, _, folder, _ = _here[told]
    path = write_source(folder, source)
    return captures.begin(path, source_key(source)).result(), path


def _begun(spec: CaptureSpec) -> tuple[Any, ...]:
    from beamsearch.gpu.usage import Usage
    from beamsearch.judge.arguments import meta_arguments
    from beamsearch.judge.capture.ahead import Captures, Means
    from beamsearch.judge.sandbox.processes import ForkServers
    from beamsearch.judge.verification.decide import shapes_for

    lane, problem = spec.lane, spec.lane.its_problem()
    folder, remover = own_folder("beamsearch-capture-")
    servers = ForkServers(folder, interpreter=False, hidden=hidden_here(Path(lane.scratch)))
    servers.start()
    meta = meta_arguments(problem)
    # As the lane's judge does: at other shapes too where it has a GPU to run them on.
    begun = partial(Captures, servers, spec.gpu, meta, Usage(), lane.seed, means=Means(1))
    captures = begun() if lane.gpu_uuid is None else begun(partial(shapes_for, problem))
    return captures, servers, folder, remover

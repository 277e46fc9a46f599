"""Where a run is done: whether it may go on there, and what its record says of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from beamsearch.errors import UsageError
from beamsearch.executor.lane_client import stand_by
from beamsearch.gpu.machine import Machine, environment_of, find_machines, modelled
from beamsearch.records.run import Environment
from beamsearch.records.trace import Trace
from beamsearch.search.pairs import MODELLED_NOISE
from beamsearch.settings import Settings
from kernel_profiling.estimate.time_model import FITTED_TRITON
from kernel_profiling.gpus import Gpu, UnknownGpu, find_gpu

if TYPE_CHECKING:
    from beamsearch.executor.cluster import Cluster

OTHER_TRITON = (
    f"The model of times was fitted to the code that Triton {FITTED_TRITON} makes, and this is "
    "Triton {}: which of two kernels is the faster may well come out wrong."
)


@dataclass(frozen=True)
class Place:
    """Where a run is done."""

    machines: Sequence[Machine]
    """The GPUs of this machine, or one that stands for those of the cluster."""
    environment: Environment
    cluster: Cluster | None = None


def find_place(settings: Settings, trace: Trace | None = None) -> Place:
    """What the settings say; on a cluster, machines like those of the run that is there. Raises
    UsageError."""
    if settings.ray is None:
        machines = find_machines(settings.device, settings.gpus, settings.target)
        return Place(machines, environment_of(machines))

    from beamsearch.executor.cluster import Cluster, best_kind, environment_like

    begun = trace is not None and trace.run_file.is_file()
    there = trace.run_record().environment if trace is not None and begun else None
    cluster = Cluster.at(settings.ray)
    try:
        best = best_kind(cluster.nodes, there.gpu if there is not None else None)
        if there is not None and there.gpu is not None and best is None:
            kinds = sorted({node.gpu for node in cluster.nodes if node.gpu is not None})
            raise UsageError(
                f"this run's times are measured on {there.gpu}, and the cluster has "
                f"{', '.join(kinds) or 'no GPU'}; go on with it where there is one of that kind"
            )
        machine = modelled(settings.target)
        if best is not None and (there is None or there.gpu is not None):
            assert best.gpu is not None
            machine = Machine(_part(best.gpu), None, elsewhere=best.gpu)
        else:
            best = None
        environment = environment_like(best, settings.target)
        nodes = cluster.serve(environment)
        return Place((machine,), environment.with_values(nodes=nodes), cluster)
    except UsageError:
        cluster.close()
        raise


def _part(gpu: str) -> Gpu:
    try:
        return find_gpu(gpu)
    except UnknownGpu as error:
        raise UsageError(f"--ray: {error}; run it on its machine, without --ray") from error


def begin_lanes(device: int | None, gpus: str | None) -> None:
    """Begin to import what lanes of their own will need, before this process has imported what the
    run needs; nothing where GPU 0 is all that is asked for. Raises UsageError as `find_place`."""
    if gpus is None and not device:
        return
    machines = find_machines(device, gpus)
    if len(machines) > 1 or machines[0].device not in (None, 0):
        for machine in machines:
            stand_by(machine.uuid or "")


def check_place(trace: Trace, environment: Environment) -> None:
    """Raise UsageError where a run that was begun cannot go on here: its times come from one kind
    of GPU, however many, or all from the model."""
    if not trace.run_file.is_file():
        return
    there = trace.run_record().environment
    if there.gpu is not None and environment.gpu is None and trace.completed_rounds():
        return  # what needs no GPU can be done here
    if there.target != environment.target or (there.gpu is None) != (environment.gpu is None):
        times = f"measured on {there.gpu}" if there.gpu else f"modelled for {there.target}"
        raise UsageError(
            f"this run's times are {times}, and this machine "
            f"{'has ' + environment.gpu if environment.gpu else 'has no GPU'}; "
            "go on with it on a machine of the same kind, or start a run in another folder"
        )


def with_gpus(there: Environment, here: Environment) -> Environment:
    """What a run was begun with, and every GPU and node that it was on, those of now too."""
    nodes = {node.id: node for node in (*there.nodes, *here.nodes)}
    gpus = list(dict.fromkeys([*there.gpus, *here.gpus]))
    return there.with_values(gpus=gpus, nodes=list(nodes.values()))


def notes_on(environment: Environment) -> list[str]:
    """What a run cannot measure or verify there."""
    if environment.gpu is not None:
        return []
    other = not (environment.triton or "").startswith(f"{FITTED_TRITON}.")
    return [
        f"No NVIDIA GPU here: times are modelled for {environment.target} and print with ~; "
        "nothing was measured, and kernels were verified in Triton's interpreter on shrunk shapes "
        f"only. A modelled time that is better by less than {MODELLED_NOISE:.0%} is no win.",
        *([OTHER_TRITON.format(environment.triton)] if other else []),
    ]

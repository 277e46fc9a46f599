"""Which GPU kernels are made for, and whether it is here: decided once, passed on as one value."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass

from beamsearch import __version__
from beamsearch.errors import UsageError
from beamsearch.gpu.environment import devices, installed, pick_device, pick_devices
from beamsearch.gpu.gauges import gpu_state
from beamsearch.records.run import Environment
from kernel_profiling.gpus import Gpu, UnknownGpu, device_gpu, find_gpu
from kernel_profiling.ncu.run import find_ncu, ncu_version

TARGET = "h200"
"""What is compiled for where there is no GPU and none is named."""


@dataclass(frozen=True)
class Machine:
    """A GPU of this machine, or a part that times are modelled for."""

    gpu: Gpu
    """Its facts."""
    device: int | None
    """CUDA's number of it; None where it is not here."""
    elsewhere: str | None = None
    """What the driver calls it, where it is in another machine, of a cluster."""

    @property
    def measures(self) -> bool:
        """Whether times are measured; else they are modelled."""
        return self.device is not None or self.elsewhere is not None

    @property
    def name(self) -> str:
        """As the driver names it, or the target."""
        if self.device is None:
            return self.elsewhere or self.gpu.name
        return devices()[self.device].name

    @property
    def uuid(self) -> str | None:
        """Its UUID; none where it is not here."""
        return None if self.device is None else devices()[self.device].uuid

    def environment(self) -> Environment:
        """The machine and the versions, for a record."""
        import torch

        picked = None if self.device is None else devices()[self.device]
        ncu = find_ncu()
        return Environment(
            gpu=picked.name if picked else None,
            gpu_uuid=picked.uuid if picked else None,
            driver=gpu_state(picked.uuid).driver if picked else None,
            cuda=torch.version.cuda,
            torch=installed("torch"),
            triton=installed("triton"),
            ncu=ncu_version(ncu) if ncu else None,
            python=platform.python_version(),
            beamsearch=__version__,
            target=picked.name if picked else self.gpu.name,
        )


def find_machine(device: int | None = None, target: str | None = None) -> Machine:
    """The GPU of that number, else the first one; where there is none, the target's facts.

    Raises UsageError for a device that is not there, and for an unknown target.
    """
    picked = pick_device(device)
    if picked is None:
        return modelled(target or TARGET)
    try:
        return Machine(find_gpu(devices()[picked].name), picked)
    except UnknownGpu:
        return Machine(device_gpu(picked), picked)


def find_machines(
    device: int | None = None,
    gpus: str | None = None,
    target: str | None = None,
    *,
    mixed: bool = False,
) -> tuple[Machine, ...]:
    """The GPUs that a run is on, all of one kind unless `mixed`: those of `gpus` (`all`, or
    numbers), where it is given, else as `find_machine`.

    Raises UsageError where one is not there, and where they are of several kinds.
    """
    if gpus is None:
        return (find_machine(device, target),)
    machines = tuple(find_machine(number) for number in pick_devices(gpus))
    names = [machine.name for machine in machines]
    if len(set(names)) > 1 and not mixed:
        kinds = {name: names.count(name) for name in names}
        told = ", ".join(f"{name} ({count})" for name, count in kinds.items())
        first = ",".join(str(m.device) for m in machines if m.name == names[0])
        raise UsageError(
            f"--gpus {gpus}: these are of several kinds, {told}, whose times do not compare; name "
            f"those of one kind, such as --gpus {first}, or run several problems by "
            "`suite --gpus mixed`"
        )
    return machines


def environment_of(machines: Sequence[Machine]) -> Environment:
    """The machine and the versions, with every GPU that is used."""
    uuids = [machine.uuid for machine in machines if machine.uuid is not None]
    return machines[0].environment().with_values(gpus=uuids)


def modelled(target: str = TARGET) -> Machine:
    """A part that is compiled for, whatever GPU is here. Raises UsageError for an unknown one."""
    try:
        return Machine(find_gpu(target), None)
    except UnknownGpu as error:
        raise UsageError(f"--target: {error}") from error

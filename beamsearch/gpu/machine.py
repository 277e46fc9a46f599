"""Which GPU kernels are made for, and whether it is here: decided once, passed on as one value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from beamsearch.gpu.environment import describe, gpu_facts, pick_device

if TYPE_CHECKING:
    from beamsearch.records.run import Environment
    from kernel_profiling.gpus import Gpu

TARGET = "h200"
"""What is compiled for where there is no GPU and none is named."""


@dataclass(frozen=True)
class Machine:
    """A GPU of this machine, or a part that times are modelled for."""

    gpu: Gpu
    """Its facts."""
    device: int | None
    """CUDA's number of it; None where it is not here."""

    @property
    def measures(self) -> bool:
        """Whether times are measured; else they are modelled."""
        return self.device is not None

    def environment(self) -> Environment:
        """The machine and the versions, for a record."""
        return describe(self.device, self.gpu.name)


def find_machine(device: int | None = None, target: str | None = None) -> Machine:
    """The GPU of that number, else the first one; where there is none, the target's facts.

    Raises UsageError for a device that is not there, and for an unknown target.
    """
    picked = pick_device(device)
    return Machine(gpu_facts(picked, target or TARGET), picked)


def modelled(target: str = TARGET) -> Machine:
    """A part that is compiled for, whatever GPU is here. Raises UsageError for an unknown one."""
    return Machine(gpu_facts(None, target), None)

"""What a GPU does now, and what may disturb a measurement on it, from NVIDIA's management library:
asking it takes milliseconds, initialises no CUDA and takes no memory on the device."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pynvml as nvml

from beamsearch.gpu.environment import devices

BUSY_PERCENT = 10.0
"""Utilisation above which somebody else is surely working: an idle GPU shows 0, a desktop a few."""
FOREIGN_MIB = 2048.0
"""Memory in use above which somebody else is there, even where the process is hidden from a
container; an idle driver holds under 1 GiB."""
COPIES = 4
"""Times the least bytes that must fit: two input sets, the reference's output and the kernel's,
and float32 intermediates of the check."""
_THROTTLES = {
    nvml.nvmlClocksThrottleReasonHwThermalSlowdown: "too hot (hardware)",
    nvml.nvmlClocksThrottleReasonSwThermalSlowdown: "too hot",
    nvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown: "power brake",
    nvml.nvmlClocksThrottleReasonHwSlowdown: "hardware slowdown",
    nvml.nvmlClocksThrottleReasonSwPowerCap: "power cap",
}


@dataclass(frozen=True)
class GpuState:
    """One look at a GPU; None where the driver does not say."""

    driver: str | None = None
    utilization_percent: float | None = None
    memory_used_mib: float | None = None
    temperature_c: int | None = None
    sm_clock_mhz: int | None = None
    throttling: tuple[str, ...] = ()
    """Reasons why clocks are held down, in words."""
    processes: tuple[str, ...] = ()
    """Other compute processes: `pid name (MiB)`."""


def gpu_state(uuid: str) -> GpuState:
    """The state of a GPU, by UUID as nvidia-smi prints it. Changes no settings."""
    try:
        nvml.nvmlInit()
        gpu = nvml.nvmlDeviceGetHandleByUUID(uuid)
    except nvml.NVMLError:
        return GpuState()
    utilization = _asked(nvml.nvmlDeviceGetUtilizationRates, gpu)
    memory = _asked(nvml.nvmlDeviceGetMemoryInfo, gpu, nvml.nvmlMemory_v2)
    reasons = _asked(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, gpu) or 0
    running = _asked(nvml.nvmlDeviceGetComputeRunningProcesses, gpu) or []
    return GpuState(
        driver=_asked(nvml.nvmlSystemGetDriverVersion),
        utilization_percent=utilization and utilization.gpu,
        memory_used_mib=memory and memory.used / 2**20,
        temperature_c=_asked(nvml.nvmlDeviceGetTemperature, gpu, nvml.NVML_TEMPERATURE_GPU),
        sm_clock_mhz=_asked(nvml.nvmlDeviceGetClockInfo, gpu, nvml.NVML_CLOCK_SM),
        throttling=tuple(words for bit, words in _THROTTLES.items() if reasons & bit),
        processes=tuple(_told(process) for process in running if process.pid != os.getpid()),
    )


def _asked(ask: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return ask(*arguments)
    except nvml.NVMLError:  # this GPU or driver does not say
        return None


def _told(process: Any) -> str:
    name = Path(_asked(nvml.nvmlSystemGetProcessName, process.pid) or "").name
    used = "?" if process.usedGpuMemory is None else process.usedGpuMemory // 2**20
    return f"{process.pid} {name} ({used} MiB)"


def gpu_warnings(device: int | None, least_bytes: int) -> list[str]:
    """What should be known before times are taken on this device, one sentence each.

    `least_bytes`: the problem's inputs, parameters and output.
    """
    if device is None:
        return []
    picked = devices()[device]
    return judge_state(picked.name, picked.memory_bytes, gpu_state(picked.uuid), least_bytes)


def judge_state(name: str, memory_bytes: int, state: GpuState, least_bytes: int) -> list[str]:
    """The warnings that a GPU's state gives rise to."""
    warnings = []
    busy, used_mib = state.utilization_percent or 0, state.memory_used_mib or 0
    if state.processes:
        warnings.append(
            f"{name} is used by others ({', '.join(state.processes[:4])}): times will be unsteady; "
            "choose another with --device"
        )
    elif busy > BUSY_PERCENT or used_mib > FOREIGN_MIB:
        warnings.append(
            f"{name} is in use ({busy:.0f}% busy, {used_mib:.0f} MiB taken) by a process that "
            "cannot be seen from here: times will be unsteady"
        )
    if state.throttling:
        at = f" at {state.temperature_c:.0f} °C" if state.temperature_c is not None else ""
        warnings.append(f"{name} is throttling{at}: {', '.join(state.throttling)}")
    need, free = COPIES * least_bytes, memory_bytes - int(used_mib * 2**20)
    if need > free:
        warnings.append(
            f"{name} may be too small: the problem wants about {need / 2**30:.1f} GiB and "
            f"{max(0, free) / 2**30:.1f} GiB are free"
        )
    return warnings

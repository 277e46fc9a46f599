"""This machine: platform, GPU, driver, versions, and what may disturb a measurement.

The driver is asked from a short-lived process, so that asking neither initialises CUDA here (such a
process cannot be forked) nor takes memory on the device.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from beamsearch import __version__
from beamsearch.errors import UsageError

if TYPE_CHECKING:
    from beamsearch.records.run import Environment
    from kernel_profiling.gpus import Gpu

PROBE_TIMEOUT_S = 60.0
"""A driver that is loading answers within seconds; a wedged one never does."""


@dataclass(frozen=True)
class Device:
    """One CUDA device, as the driver numbers it for this user (CUDA_VISIBLE_DEVICES respected)."""

    index: int
    name: str
    uuid: str
    """With its prefix, as nvidia-smi prints it: `GPU-…`."""
    memory_bytes: int


@dataclass(frozen=True)
class GpuState:
    """What nvidia-smi says of one GPU now; None where it does not say."""

    driver: str | None = None
    utilization_percent: float | None = None
    memory_used_mib: float | None = None
    temperature_c: float | None = None
    throttling: tuple[str, ...] = ()
    """Reasons why clocks are held down, in words."""
    processes: tuple[str, ...] = ()
    """Other compute processes: `pid name (MiB)`."""


def unsupported_platform() -> str | None:
    """Why this platform cannot run the main job, in one sentence; None where it can."""
    system = platform.system()
    if system == "Darwin":
        return (
            "macOS has no Triton compiler, so kernels can be neither run nor compiled here; use a "
            "Linux machine or container, with or without an NVIDIA GPU"
        )
    if system == "Windows":
        return "Windows has no Triton compiler; use WSL2, where everything works, the GPU included"
    if system != "Linux":
        return f"{system} is not supported: Triton needs Linux"
    if _installed("torch").find("+rocm") >= 0:
        return (
            "this PyTorch is built for AMD's ROCm, and only NVIDIA GPUs are supported; install the "
            "CUDA or CPU build of torch, which works without a GPU"
        )
    return None


def check_platform() -> None:
    """Raise UsageError where the platform cannot run the main job."""
    reason = unsupported_platform()
    if reason is not None:
        raise UsageError(reason)


# Asks libcuda alone, with no context: name, uuid and memory of each visible device.
_PROBE = """
import ctypes, json, sys, uuid
try:
    cuda = ctypes.CDLL("libcuda.so.1")
except OSError:
    print("[]"); sys.exit()
status = cuda.cuInit(0)
if status != 0:
    print(json.dumps({"status": status})); sys.exit()
count = ctypes.c_int()
cuda.cuDeviceGetCount(ctypes.byref(count))
devices = []
for index in range(count.value):
    name, raw, size = ctypes.create_string_buffer(256), ctypes.create_string_buffer(16), \
ctypes.c_size_t()
    cuda.cuDeviceGetName(name, 256, index)
    getattr(cuda, "cuDeviceGetUuid_v2", cuda.cuDeviceGetUuid)(raw, index)
    cuda.cuDeviceTotalMem_v2(ctypes.byref(size), index)
    devices.append({"index": index, "name": name.value.decode(), "memory_bytes": size.value,
                    "uuid": "GPU-" + str(uuid.UUID(bytes=raw.raw))})
print(json.dumps(devices))
"""
_CUDA_NO_DEVICE = 100


@cache
def devices() -> tuple[Device, ...]:
    """The CUDA devices of this machine; none without an NVIDIA driver.

    Raises UsageError where there is a driver that does not answer, with what it says.
    """
    try:
        probe = subprocess.run(
            [sys.executable, "-c", _PROBE],
            capture_output=True,
            text=True,
            timeout=PROBE_TIMEOUT_S,
            check=True,
        )
    except (subprocess.SubprocessError, OSError) as error:
        raise UsageError(
            f"the NVIDIA driver does not answer ({error}); restart it, or hide the GPU with "
            "CUDA_VISIBLE_DEVICES= to go on without"
        ) from error
    answer = json.loads(probe.stdout)
    if isinstance(answer, dict):
        if answer["status"] == _CUDA_NO_DEVICE:
            return ()
        raise UsageError(
            f"the NVIDIA driver refuses with CUDA error {answer['status']}; see nvidia-smi, or "
            "hide the GPU with CUDA_VISIBLE_DEVICES= to go on without"
        )
    return tuple(Device(**item) for item in answer)


def pick_device(asked: int | None) -> int | None:
    """The CUDA device to use: the one asked for, else the first; None where there is none.

    Raises UsageError where the one asked for does not exist.
    """
    present = devices()
    if asked is None:
        return 0 if present else None
    if asked >= len(present):
        have = f"devices 0 to {len(present) - 1}" if present else "no NVIDIA GPU"
        raise UsageError(f"--device {asked}: this machine has {have}")
    return asked


def gpu_facts(device: int | None, target: str) -> Gpu:
    """The part behind a device, or the target compiled for where there is none.

    Raises UsageError where the target is unknown, listing the known.
    """
    from kernel_profiling.gpus import GPUS, UnknownGpu, device_gpu, find_gpu

    if device is not None:
        try:
            return find_gpu(devices()[device].name)
        except UnknownGpu:
            return device_gpu(device)
    try:
        return find_gpu(target)
    except UnknownGpu as error:
        for gpu in GPUS.values():
            if gpu.name == target:
                return gpu
        raise UsageError(f"--target: {error}") from error


def describe(device: int | None, target: str = "h200") -> Environment:
    """The machine and the versions, for a run's record. Raises UsageError for an unknown target."""
    from beamsearch.records.run import Environment

    picked = None if device is None else devices()[device]
    return Environment(
        gpu=picked.name if picked else None,
        gpu_uuid=picked.uuid if picked else None,
        driver=gpu_state(picked.uuid).driver if picked else None,
        cuda=_cuda_of_torch(),
        torch=_installed("torch"),
        triton=_installed("triton"),
        ncu=_ncu(),
        python=platform.python_version(),
        beamsearch=__version__,
        target=picked.name if picked else gpu_facts(None, target).name,
    )


def _installed(package: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _cuda_of_torch() -> str | None:
    import torch

    return torch.version.cuda


def _ncu() -> str | None:
    from kernel_profiling.ncu.run import find_ncu, ncu_version

    path = find_ncu()
    return None if path is None else ncu_version(path)


# Fields of nvidia-smi: asked one query each, since an unknown field fails its whole query.
_THROTTLES = {
    "hw_thermal_slowdown": "too hot (hardware)",
    "sw_thermal_slowdown": "too hot",
    "hw_power_brake_slowdown": "power brake",
    "hw_slowdown": "hardware slowdown",
    "sw_power_cap": "power cap",
}


def smi(*arguments: str) -> str | None:
    """What nvidia-smi prints; None where it is absent, fails or hangs. Changes no settings."""
    try:
        done = subprocess.run(
            ["nvidia-smi", *arguments], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def gpu_state(uuid: str) -> GpuState:
    """What nvidia-smi says of a GPU now."""
    fields = "driver_version,utilization.gpu,memory.used,temperature.gpu"
    plain = _query(uuid, fields)
    reasons = _query(uuid, ",".join(f"clocks_event_reasons.{name}" for name in _THROTTLES))
    if not reasons:  # drivers before 535 use the older name
        reasons = _query(uuid, ",".join(f"clocks_throttle_reasons.{name}" for name in _THROTTLES))
    apps = smi("--query-compute-apps=pid,process_name,used_memory", *_csv(uuid)) or ""
    return read_state(plain, reasons, apps, own=os.getpid())


def _csv(uuid: str) -> tuple[str, str, str]:
    return ("--format=csv,noheader,nounits", "-i", uuid)


def _query(uuid: str, fields: str) -> list[str]:
    line = smi(f"--query-gpu={fields}", *_csv(uuid))
    return [part.strip() for part in line.strip().split(",")] if line else []


def read_state(plain: list[str], reasons: list[str], apps: str, own: int) -> GpuState:
    """A GPU's state from nvidia-smi's answers. `own`: this process, which is no other."""
    driver, *numbers = plain or [""]
    values: list[float | None] = [_number(text) for text in numbers]
    utilization, used, temperature = (values + [None] * 3)[:3]
    held = [
        words for words, said in zip(_THROTTLES.values(), reasons, strict=False) if said == "Active"
    ]
    others = []
    for line in apps.splitlines():
        pid, name, memory = ([part.strip() for part in line.split(",")] + ["", ""])[:3]
        if pid.isdigit() and int(pid) != own:
            others.append(f"{pid} {Path(name).name} ({memory} MiB)")
    return GpuState(
        driver=driver or None,
        utilization_percent=utilization,
        memory_used_mib=used,
        temperature_c=temperature,
        throttling=tuple(held),
        processes=tuple(others),
    )


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:  # "[N/A]", "[Not Supported]"
        return None


BUSY_PERCENT = 10.0
"""Utilisation above which somebody else is surely working: an idle GPU shows 0, a desktop a few."""
FOREIGN_MIB = 2048.0
"""Memory in use above which somebody else is there, even where the process is hidden from a
container; an idle driver holds under 1 GiB."""
COPIES = 4
"""Times the least bytes that must fit: two input sets, the reference's output and the kernel's,
and float32 intermediates of the check."""


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
    if state.processes:
        warnings.append(
            f"{name} is used by others ({', '.join(state.processes[:4])}): times will be unsteady; "
            "choose another with --device"
        )
    elif (state.utilization_percent or 0) > BUSY_PERCENT or (
        state.memory_used_mib or 0
    ) > FOREIGN_MIB:
        warnings.append(
            f"{name} is in use ({state.utilization_percent or 0:.0f}% busy, "
            f"{state.memory_used_mib or 0:.0f} MiB taken) by a process that cannot be seen from "
            "here: times will be unsteady"
        )
    if state.throttling:
        at = f" at {state.temperature_c:.0f} °C" if state.temperature_c is not None else ""
        warnings.append(f"{name} is throttling{at}: {', '.join(state.throttling)}")
    need = COPIES * least_bytes
    free = memory_bytes - int(max(0.0, state.memory_used_mib or 0.0)) * 2**20
    if need > free:
        warnings.append(
            f"{name} may be too small: the problem wants about {need / 2**30:.1f} GiB and "
            f"{max(0, free) / 2**30:.1f} GiB are free"
        )
    return warnings


def cache_folder() -> Path:
    """Where measurements are kept between runs: `$XDG_CACHE_HOME/beamsearch`."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "beamsearch"

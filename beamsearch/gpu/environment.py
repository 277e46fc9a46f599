"""This machine: its platform and its CUDA devices.

CUDA's driver is asked from a short-lived process: one that has initialised CUDA cannot be forked.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from beamsearch.errors import UsageError

PROBE_TIMEOUT_S = 60.0
"""A driver that is loading answers within seconds; a wedged one never does."""
_CUDA_NO_DEVICE = 100
_WITHOUT_TRITON = {
    "Darwin": "macOS has no Triton compiler, so kernels can be neither run nor compiled here; use "
    "a Linux machine or container, with or without an NVIDIA GPU",
    "Windows": "Windows has no Triton compiler; use WSL2, where everything works, the GPU included",
}
# Asks libcuda alone, with no context.
_PROBE = """
import json, uuid
try:
    from cuda.bindings import driver as cuda
    status = int(cuda.cuInit(0)[0])
except (ImportError, RuntimeError):  # no driver
    status = 100
devices = [] if status else [
    {
        "index": index,
        "name": cuda.cuDeviceGetName(256, index)[1].split(b"\\0")[0].decode(),
        "uuid": "GPU-" + str(uuid.UUID(bytes=bytes(
            getattr(cuda, "cuDeviceGetUuid_v2", cuda.cuDeviceGetUuid)(index)[1].bytes))),
        "memory_bytes": cuda.cuDeviceTotalMem(index)[1],
    }
    for index in range(cuda.cuDeviceGetCount()[1])
]
print(json.dumps([status, devices]))
"""


@dataclass(frozen=True)
class Device:
    """One CUDA device, as the driver numbers it for this user (CUDA_VISIBLE_DEVICES respected)."""

    index: int
    name: str
    uuid: str
    """With its prefix, as nvidia-smi prints it: `GPU-…`."""
    memory_bytes: int


def unsupported_platform() -> str | None:
    """Why this platform cannot run the main job, in one sentence; None where it can."""
    system = platform.system()
    if system != "Linux":
        return _WITHOUT_TRITON.get(system, f"{system} is not supported: Triton needs Linux")
    if "+rocm" in installed("torch"):
        return (
            "this PyTorch is built for AMD's ROCm, and only NVIDIA GPUs are supported; install the "
            "CUDA or CPU build of torch, which works without a GPU"
        )
    return None


def check_platform() -> None:
    """Raise UsageError where the platform cannot run the main job."""
    if reason := unsupported_platform():
        raise UsageError(reason)


def installed(package: str) -> str:
    """The version of a package, or `not installed`."""
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def see_only(there: Sequence[Device]) -> None:
    """From now on this process and those that it starts see these GPUs alone; it has not used CUDA
    yet. The driver, which takes a second to start, is not asked again."""
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(device.uuid for device in there)
    _SEEN[:] = [replace(device, index=number) for number, device in enumerate(there)]
    devices.cache_clear()


_SEEN: list[Device] = []


@cache
def devices() -> tuple[Device, ...]:
    """The CUDA devices of this machine; none without an NVIDIA driver.

    Raises UsageError where there is a driver that does not answer, with what it says.
    """
    if _SEEN:
        return tuple(_SEEN)
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
    status, found = json.loads(probe.stdout)
    if status not in (0, _CUDA_NO_DEVICE):
        raise UsageError(
            f"the NVIDIA driver refuses with CUDA error {status}; see nvidia-smi, or "
            "hide the GPU with CUDA_VISIBLE_DEVICES= to go on without"
        )
    return tuple(Device(**item) for item in found)


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


def pick_devices(asked: str) -> list[int]:
    """The CUDA devices of `all`, or of numbers such as `0,2`. Raises UsageError where one does not
    exist."""
    present = devices()
    have = f"devices 0 to {len(present) - 1}" if present else "no NVIDIA GPU"
    if asked in ("all", "mixed"):
        numbers = list(range(len(present)))
    else:
        numbers = [int(number) for number in asked.split(",")]
    if not numbers or max(numbers) >= len(present):
        raise UsageError(f"--gpus {asked}: this machine has {have}")
    return numbers

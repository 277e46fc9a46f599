"""GPU facts: what the datasheet says of each part, and how a device's name finds it."""

from __future__ import annotations

import difflib
import re
from typing import Any

from kernel_profiling.errors import ProfilingError
from kernel_profiling.profile import Record

MIB = 1 << 20
KIB = 1 << 10
SECTOR_BYTES = 32
"""What L1, L2 and device memory move at the least, on every GPU since Pascal."""


class UnknownGpu(ProfilingError):
    """A GPU that is not in the table; the message lists those that are."""


class Gpu(Record):
    """One GPU part. Rates are dense, at boost clock, as the maker's datasheet states them."""

    name: str
    key: str
    """What a person types: `h200`."""
    capability: int
    """Compute capability, major times ten plus minor: 90."""
    sms: int
    bandwidth_gb_s: float
    """Datasheet bandwidth of the device memory, 1e9 bytes a second."""
    l2_bytes: int
    shared_bytes_per_sm: int
    registers_per_sm: int = 65536
    """32-bit registers of one SM."""
    max_warps_per_sm: int
    max_blocks_per_sm: int
    boost_clock_mhz: int
    memory_bytes: int
    tflops: dict[str, float]
    """Dense TFLOP/s by dtype: float32 and float64 on the ordinary cores; tf32, float16 and
    bfloat16 on the matrix units, accumulating in float32."""
    estimated: bool = False
    """True where the part is unknown and the figures were derived from the driver's."""
    device_names: tuple[str, ...] = ()
    """Names the driver reports for this part, exactly."""


# Per compute capability: warps and blocks an SM holds, shared memory of an SM.
# Source: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
_SM_LIMITS: dict[int, tuple[int, int, int]] = {
    80: (64, 32, 164 * KIB),
    86: (48, 16, 100 * KIB),
    87: (48, 16, 164 * KIB),
    89: (48, 24, 100 * KIB),
    90: (64, 32, 228 * KIB),
    100: (64, 32, 228 * KIB),
    103: (64, 32, 228 * KIB),
    110: (48, 24, 228 * KIB),
    120: (48, 24, 100 * KIB),
    121: (48, 24, 100 * KIB),
}


# Key | name | compute capability, SMs, boost MHz | GB/s, MiB of L2, GB | TFLOP/s in float32, tf32,
# float16 (bfloat16 runs at the same) and float64 | names that the driver reports, after `NVIDIA `.
# Sources: NVIDIA's datasheets and architecture whitepapers (Ampere GA100/GA102, Ada AD102, Hopper
# H100, Blackwell); sparse rates halved to dense. GeForce matrix rates are those with float32
# accumulation, which is what a correct kernel uses.
_PARTS = """
a100      | A100 SXM 80GB    | 80 108 1410  | 2039 40 80   | 19.5 156 312 9.7       | A100-SXM4-80GB
a100-40gb | A100 SXM 40GB    | 80 108 1410  | 1555 40 40   | 19.5 156 312 9.7       | A100-SXM4-40GB, A100-PCIE-40GB
a100-pcie | A100 PCIe 80GB   | 80 108 1410  | 1935 40 80   | 19.5 156 312 9.7       | A100 80GB PCIe
h100      | H100 SXM         | 90 132 1980  | 3350 50 80   | 66.9 494.7 989.4 33.5  | H100 80GB HBM3
h100-pcie | H100 PCIe        | 90 114 1755  | 2000 50 80   | 51.2 378 756 25.6      | H100 PCIe
h100-nvl  | H100 NVL         | 90 132 1785  | 3938 50 94   | 60 417.5 835.5 30      | H100 NVL
h200      | H200 SXM         | 90 132 1980  | 4800 60 141  | 66.9 494.7 989.4 33.5  | H200
b200      | B200             | 100 148 1965 | 8000 126 180 | 75 1125 2250 37        | B200
l4        | L4               | 89  58 2040  | 300 48 24    | 30.3 60 121 0.47       | L4
l40s      | L40S             | 89 142 2520  | 864 96 48    | 91.6 183 362 1.43      | L40S
a10       | A10              | 86  72 1695  | 600 6 24     | 31.2 62.5 125 0.98     | A10
rtx3080   | GeForce RTX 3080 | 86  68 1710  | 760 5 10     | 29.8 29.8 59.5 0.47    | GeForce RTX 3080
rtx3090   | GeForce RTX 3090 | 86  82 1695  | 936 6 24     | 35.6 35.6 71.2 0.56    | GeForce RTX 3090
rtx4080   | GeForce RTX 4080 | 89  76 2505  | 716.8 64 16  | 48.7 48.7 97.5 0.76    | GeForce RTX 4080
rtx4090   | GeForce RTX 4090 | 89 128 2520  | 1008 72 24   | 82.6 82.6 165.2 1.29   | GeForce RTX 4090
rtx5090   | GeForce RTX 5090 | 120 170 2407 | 1792 96 32   | 104.8 104.8 209.5 1.64 | GeForce RTX 5090
"""  # noqa: E501


def _part(row: str) -> Gpu:
    key, name, chip, memory, rates, devices = (cell.strip() for cell in row.split("|"))
    capability, sms, clock_mhz = map(int, chip.split())
    bandwidth_gb_s, l2_mib, memory_gb = map(float, memory.split())
    float32, tf32, half, float64 = map(float, rates.split())
    warps, blocks, shared = _SM_LIMITS[capability]
    return Gpu(
        key=key,
        name=name,
        capability=capability,
        sms=sms,
        bandwidth_gb_s=bandwidth_gb_s,
        l2_bytes=int(l2_mib * MIB),
        shared_bytes_per_sm=shared,
        max_warps_per_sm=warps,
        max_blocks_per_sm=blocks,
        boost_clock_mhz=clock_mhz,
        memory_bytes=int(memory_gb * 1e9),
        tflops={
            "float32": float32,
            "tf32": tf32,
            "float16": half,
            "bfloat16": half,
            "float64": float64,
        },
        device_names=tuple(f"NVIDIA {device}" for device in devices.split(", ")),
    )


GPUS: dict[str, Gpu] = {gpu.key: gpu for gpu in map(_part, _PARTS.strip().splitlines())}


def find_gpu(name: str) -> Gpu:
    """The part of this key (`h200`, any case, spaces ignored), own name or exact device name.

    Raises UnknownGpu, listing the known.
    """
    for gpu in GPUS.values():
        if name in (gpu.name, *gpu.device_names):
            return gpu
    key = re.sub(r"[\s_]+", "", name.lower())
    for gpu in GPUS.values():
        if key in (gpu.key, gpu.key.replace("-", "")):
            return gpu
    near = difflib.get_close_matches(key, GPUS, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    raise UnknownGpu(f"unknown GPU {name!r}; {hint}known: {', '.join(GPUS)}")


def device_gpu(index: int = 0) -> Gpu:
    """The part behind a CUDA device; an unknown one is estimated and marked so.

    Raises UnknownGpu where there is no such device.
    """
    import torch

    if not torch.cuda.is_available() or index >= torch.cuda.device_count():
        raise UnknownGpu(f"no CUDA device {index} on this machine")
    properties = torch.cuda.get_device_properties(index)
    try:
        return find_gpu(properties.name)
    except UnknownGpu:
        return estimate_gpu(properties)


def estimate_gpu(properties: Any) -> Gpu:
    """A part from what the driver reports (`torch.cuda.get_device_properties`), marked estimated.

    What the driver does not tell is scaled by SMs from the nearest known part of the same or an
    older compute capability.
    """
    capability = properties.major * 10 + properties.minor
    sms = properties.multi_processor_count
    kin = max(
        GPUS.values(),
        key=lambda gpu: (
            gpu.capability <= capability,
            -abs(gpu.capability - capability) if gpu.capability <= capability else -gpu.capability,
            -abs(gpu.sms - sms),
        ),
    )
    scale = sms / kin.sms
    clock_khz = getattr(properties, "clock_rate", 0) or kin.boost_clock_mhz * 1000
    bus_bits = getattr(properties, "memory_bus_width", 0)
    memory_khz = getattr(properties, "memory_clock_rate", 0)
    # Two transfers a clock: the driver reports the clock of double-data-rate memory.
    bandwidth = 2 * memory_khz * bus_bits / 8 / 1e6 if bus_bits and memory_khz else 0
    nearest = max((c for c in _SM_LIMITS if c <= capability), default=80)
    warps, blocks, shared = _SM_LIMITS[nearest]
    return Gpu(
        key=re.sub(r"[^a-z0-9]+", "-", properties.name.lower()).strip("-"),
        name=properties.name,
        capability=capability,
        sms=sms,
        bandwidth_gb_s=bandwidth or kin.bandwidth_gb_s * scale,
        l2_bytes=getattr(properties, "L2_cache_size", 0) or kin.l2_bytes,
        shared_bytes_per_sm=getattr(properties, "shared_memory_per_multiprocessor", 0) or shared,
        registers_per_sm=getattr(properties, "regs_per_multiprocessor", 0) or 65536,
        max_warps_per_sm=properties.max_threads_per_multi_processor // 32 or warps,
        max_blocks_per_sm=blocks,
        boost_clock_mhz=clock_khz // 1000,
        memory_bytes=properties.total_memory,
        tflops={
            dtype: rate * scale * clock_khz / 1000 / kin.boost_clock_mhz
            for dtype, rate in kin.tflops.items()
        },
        estimated=True,
        device_names=(properties.name,),
    )

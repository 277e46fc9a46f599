"""How many warps of a kernel an SM holds at once, and what limits them."""

from __future__ import annotations

import re
from math import prod

from kernel_profiling.gpus import Gpu

# Granularities since compute capability 7.0/8.0. Source: the occupancy calculator that comes with
# Nsight Compute.
_REGISTERS_A_WARP_UNIT = 256
_WARPS_UNIT = 4
_SHARED_UNIT = 128
_SHARED_RESERVED = 1024
"""Bytes of shared memory the system takes of every block."""

_TENSOR = re.compile(r"tensor<((?:\d+x)+)(?:bf|f)(\d+)>")
"""A block of floating-point numbers in Triton's IR; of addresses and masks little is ever kept."""


def registers_of_largest_block(ttir: str, threads: int) -> int:
    """Registers a thread that the largest block of numbers of a kernel takes by itself, spread over
    so many threads. A thread has 255 (CUDA C++ Programming Guide, technical specifications)."""
    blocks = {match.groups() for match in _TENSOR.finditer(ttir)}
    bits = (prod(map(int, sizes.split("x")[:-1])) * int(width) for sizes, width in blocks)
    return max(bits, default=0) // 32 // threads


def limits_per_sm(gpu: Gpu, threads: int, registers: int, shared_bytes: int) -> dict[str, int]:
    """Registers, shared memory, warps and blocks -> blocks that an SM has enough of it for.

    `registers` a thread, `shared_bytes` a block. Zero blocks where one alone does not fit.
    """
    warps = -(-threads // 32)
    a_warp = -(-max(registers, 1) * 32 // _REGISTERS_A_WARP_UNIT) * _REGISTERS_A_WARP_UNIT
    by_registers = gpu.registers_per_sm // a_warp // _WARPS_UNIT * _WARPS_UNIT // warps
    a_block = -(-shared_bytes // _SHARED_UNIT) * _SHARED_UNIT + _SHARED_RESERVED
    return {
        "warps": gpu.max_warps_per_sm // warps,
        "blocks": gpu.max_blocks_per_sm,
        "registers": by_registers,
        "shared memory": gpu.shared_bytes_per_sm // a_block,
    }


def blocks_per_sm(gpu: Gpu, threads: int, registers: int, shared_bytes: int) -> tuple[int, str]:
    """Blocks an SM holds, and the limiter, as in `limits_per_sm`."""
    limits = limits_per_sm(gpu, threads, registers, shared_bytes)
    limiter = min(limits, key=lambda name: limits[name])
    return limits[limiter], limiter


def occupancy(gpu: Gpu, threads: int, registers: int, shared_bytes: int) -> tuple[float, str]:
    """Theoretical occupancy (0..1) and its limiter."""
    blocks, limiter = blocks_per_sm(gpu, threads, registers, shared_bytes)
    return blocks * -(-threads // 32) / gpu.max_warps_per_sm, limiter


def max_shared_bytes(gpu: Gpu) -> int:
    """Most shared memory one block may ask for, in bytes."""
    return gpu.shared_bytes_per_sm - _SHARED_RESERVED

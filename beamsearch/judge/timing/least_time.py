"""Whether a GPU could do a call's work in the time that was measured. Pure functions."""

from __future__ import annotations

from collections.abc import Callable

from beamsearch.problem.least_work import LeastWork
from kernel_profiling.floor.roofline import matrix_rate
from kernel_profiling.gpus import Gpu

BEATEN = 0.95
"""Part of the least time that the memory needs below which a time is impossible: the datasheet's
bandwidth is never reached, but the amount that stays in the L2 is known only roughly."""


def impossible(
    time_ms: float, work: LeastWork, gpu: Gpu, l2_bytes: int, needed: Callable[[], float]
) -> str | None:
    """Why the memory could not do it in this time.

    The datasheet's bandwidth, for every byte that must be read or written; what fits in the L2 may
    be written after the call. `needed`: part of the inputs that the outputs depend on, asked only
    where it matters.
    """
    bandwidth = gpu.bandwidth_gb_s * (1.5 if gpu.estimated else 1.0) * 1e6  # bytes in a ms

    def least(read: float) -> float:
        return BEATEN * max(0.0, read + work.bytes_written - l2_bytes) / bandwidth

    if time_ms >= least(work.bytes_read):
        return None
    limit = least(needed() * work.bytes_read)
    if time_ms >= limit:
        return None
    return (
        f"takes {time_ms:.4g} ms where reading its inputs and writing its outputs once takes at "
        f"least {limit:.4g} ms at {gpu.bandwidth_gb_s:.4g} GB/s: not all of the work is done"
    )


def below_arithmetic(time_ms: float, work: LeastWork, gpu: Gpu) -> str | None:
    """What there is to tell of a time in which the reference's FLOPs cannot be done at the
    datasheet's rate, or none.

    No proof against a kernel whose results are precise enough: zeros and other algorithms need
    fewer. The floor is then wrong.
    """
    least = work.flops / matrix_rate(gpu, work.products) / 1e9
    if gpu.estimated or time_ms >= least:
        return None
    return (
        f"below the floor: {time_ms:.4g} ms, where {work.flops / 1e9:.4g} GFLOP take at least "
        f"{least:.4g} ms in {work.products}; the floor is wrong, or the products are in a cheaper "
        "format whose errors do not show"
    )

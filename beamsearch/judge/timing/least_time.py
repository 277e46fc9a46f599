"""Whether a GPU could do a call's work in the time that was measured."""

import functools
import random
import secrets
from collections.abc import Callable

import torch

from beamsearch.problem.instance import instantiate
from beamsearch.problem.least_work import LeastWork
from beamsearch.problem.outputs import outputs_of
from beamsearch.problem.problem import Problem
from kernel_profiling.floor.roofline import matrix_rate
from kernel_profiling.gpus import SECTOR_BYTES, Gpu

BEATEN = 0.95
"""Part of the least time that the memory needs below which a time is impossible: the datasheet's
bandwidth is never reached, but the amount that stays in the L2 is known only roughly."""
SAMPLES = 32
"""Places tried. Where all matter, nine tenths of the bytes do with 97% certainty."""
MARGIN = 0.1


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


@functools.lru_cache(maxsize=8)
def needed_share(problem: Problem, device: str) -> float:
    """Part of the inputs' and parameters' bytes that any kernel must read, at least.

    Of random places in them, how many change the reference's output when they are not a number: a
    strided input, or the weights of an expert that nobody asks, are read in part only.
    """
    draw = random.Random(secrets.randbits(64))
    instance = instantiate(problem, device, secrets.randbits(31))
    tensors = [x for x in instance.inputs if isinstance(x, torch.Tensor)]
    tensors += list(instance.arguments.state.values())
    floating = [x for x in tensors if x.is_floating_point() and x.is_contiguous()]
    before = outputs_of(instance.reference())
    if not floating or any(bool(x.isnan().any()) for x in before if x.is_floating_point()):
        return 0.0
    sizes = [x.nbytes for x in floating]
    mattered = 0
    for _ in range(SAMPLES):
        (chosen,) = draw.choices(floating, sizes)
        length = max(1, SECTOR_BYTES // chosen.element_size())
        start = draw.randrange(chosen.numel()) // length * length
        place = chosen.view(-1)[start : start + length]
        values = place.clone()
        place.fill_(float("nan"))
        after = outputs_of(instance.reference())
        place.copy_(values)
        mattered += any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))
    # Of whole numbers nothing is known: an index need not be read to be harmless.
    known = sum(sizes) / sum(x.nbytes for x in tensors)
    return known * max(0.0, mattered / SAMPLES - MARGIN)

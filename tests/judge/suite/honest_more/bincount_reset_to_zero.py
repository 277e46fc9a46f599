"""Autotuned with reset_to_zero; atomics into a zeroed buffer; integers in and out."""

import torch
import triton
import triton.language as tl

PROBLEM = "more_bincount"
NEEDS_GPU = "at small shapes the counts of other inputs would pass"


@triton.autotune(
    [
        triton.Config({"BLOCK": 1024, "STEPS": 32}, num_warps=4),
        triton.Config({"BLOCK": 2048, "STEPS": 32}, num_warps=8),
    ],
    key=["total"],
    reset_to_zero=["counts_ptr"],
)
@triton.jit
def count_kernel(
    x_ptr, counts_ptr, total, bins, BINS: tl.constexpr, BLOCK: tl.constexpr, STEPS: tl.constexpr
):
    first = tl.program_id(0).to(tl.int64) * BLOCK * STEPS
    found = tl.zeros((BINS,), dtype=tl.int32)
    for step in range(STEPS):
        index = first + step * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + index, mask=index < total, other=0).to(tl.int32)
        found += tl.histogram(x, BINS, mask=index < total)
    place = tl.arange(0, BINS)
    tl.atomic_add(counts_ptr + place, found.to(tl.int64), mask=place < bins, sem="relaxed")


def kernel_function(x, bins):
    counts = torch.zeros(bins, dtype=torch.int64, device=x.device)
    total = x.numel()
    count_kernel[lambda meta: (triton.cdiv(total, meta["BLOCK"] * meta["STEPS"]),)](
        x, counts, total, bins, BINS=max(32, triton.next_power_of_2(bins))
    )
    return counts

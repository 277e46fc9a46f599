"""Sums a vector with one atomic addition an element, all to the same address."""

import torch
import triton
import triton.language as tl

FLAW = "atomics"


@triton.jit
def sum_kernel(x_ptr, total_ptr, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index)
    tl.atomic_add(total_ptr + tl.zeros((BLOCK,), dtype=tl.int32), x, sem="relaxed")  # flaw


def kernel_function(x):
    total = torch.zeros(1, device=x.device, dtype=torch.float32)
    sum_kernel[(x.numel() // 1024,)](x, total, BLOCK=1024, num_warps=4)
    return total


def reference(x):
    return x.double().sum().float().reshape(1)


def make_inputs(device):
    return (torch.rand(1 << 20, device=device),)

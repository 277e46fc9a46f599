"""Iterates a map with a barrier in each step, though no warp reads what another has written."""

import torch
import triton
import triton.language as tl

FLAW = "synchronisation"


@triton.jit
def logistic_kernel(x_ptr, y_ptr, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index)
    for _ in range(STEPS):
        x = 2.5 * x * (1.0 - x)
        tl.debug_barrier()  # flaw
    tl.store(y_ptr + index, x)


def kernel_function(x):
    y = torch.empty_like(x)
    logistic_kernel[(x.numel() // 1024,)](x, y, STEPS=64, BLOCK=1024, num_warps=32)
    return y


def reference(x):
    for _ in range(64):
        x = 2.5 * x * (1.0 - x)
    return x


def make_inputs(device):
    return (torch.rand(1 << 24, device=device),)

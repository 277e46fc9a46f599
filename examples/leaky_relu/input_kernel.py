"""A first kernel: right, and with one warp a block."""

import torch
import triton
import triton.language as tl


@triton.jit
def leaky_relu(x_ptr, y_ptr, slope, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, at < n)
    tl.store(y_ptr + at, tl.where(x > 0, x, slope * x), at < n)


def kernel_function(x, slope):
    y = torch.empty_like(x)
    grid = (triton.cdiv(x.numel(), 256),)
    leaky_relu[grid](x, y, slope, x.numel(), BLOCK=256, num_warps=1)
    return y

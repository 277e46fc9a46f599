"""Computes the group's first offset in 32 bits, which overflow at the true size."""

import torch
import triton
import triton.language as tl

PROBLEM = "group_norm"


@triton.jit
def norm_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    groups,
    per_group,
    pixels,
    eps,
    BLOCK: tl.constexpr,
):
    """One group of one image; lanes keep their own sums."""
    size = per_group * pixels
    base = tl.program_id(0) * size
    sums = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, size, BLOCK):
        index = start + tl.arange(0, BLOCK)
        sums += tl.load(x_ptr + base + index, mask=index < size, other=0.0).to(tl.float32)
    mean = tl.sum(sums, axis=0) / size
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, size, BLOCK):
        index = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + base + index, mask=index < size, other=0.0).to(tl.float32)
        off = tl.where(index < size, x - mean, 0.0)
        squares += off * off
    scale = 1 / tl.sqrt(tl.sum(squares, axis=0) / size + eps)
    first_channel = (tl.program_id(0) % groups) * per_group
    for start in range(0, size, BLOCK):
        index = start + tl.arange(0, BLOCK)
        mask = index < size
        channel = first_channel + index // pixels
        x = tl.load(x_ptr + base + index, mask=mask).to(tl.float32)
        weight = tl.load(weight_ptr + channel, mask=mask).to(tl.float32)
        bias = tl.load(bias_ptr + channel, mask=mask).to(tl.float32)
        y = (x - mean) * scale * weight + bias
        tl.store(y_ptr + base + index, y.to(y_ptr.dtype.element_ty), mask=mask)


def kernel_function(x, weight, bias, num_groups, eps):
    x = x.contiguous()
    N, C, H, W = x.shape
    y = torch.empty_like(x)
    norm_kernel[(N * num_groups,)](
        x, weight, bias, y, num_groups, C // num_groups, H * W, eps, BLOCK=4096, num_warps=8
    )
    return y

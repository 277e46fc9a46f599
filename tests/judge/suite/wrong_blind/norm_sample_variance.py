"""Divides the variance by N - 1, where layer normalisation divides by N."""

import torch
import triton
import triton.language as tl

PROBLEM = "layer_norm"


@triton.jit
def norm_kernel(x_ptr, weight_ptr, bias_ptr, y_ptr, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    x = tl.load(x_ptr + row * columns + column, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / columns
    centered = tl.where(mask, x - mean, 0.0)
    variance = tl.sum(centered * centered, axis=0) / (columns - 1)
    weight = tl.load(weight_ptr + column, mask=mask)
    bias = tl.load(bias_ptr + column, mask=mask)
    y = centered * tl.rsqrt(variance + eps) * weight + bias
    tl.store(y_ptr + row * columns + column, y, mask=mask)


def kernel_function(x, weight, bias, eps):
    x = x.contiguous()
    rows, columns = x.shape
    y = torch.empty_like(x)
    block = triton.next_power_of_2(columns)
    norm_kernel[(rows,)](x, weight, bias, y, columns, eps, BLOCK=block, num_warps=8)
    return y

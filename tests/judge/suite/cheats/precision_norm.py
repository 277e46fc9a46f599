"""Rounds float32 rows to bfloat16 before it normalises them."""

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
    x = x.to(tl.bfloat16).to(tl.float32)
    mean = tl.sum(x, axis=0) / columns
    centered = tl.where(mask, x - mean, 0.0)
    variance = tl.sum(centered * centered, axis=0) / columns
    weight = tl.load(weight_ptr + column, mask=mask)
    bias = tl.load(bias_ptr + column, mask=mask)
    y = centered / tl.sqrt(variance + eps) * weight + bias
    tl.store(y_ptr + row * columns + column, y, mask=mask)


def norm(x, weight, bias, eps):
    rows, columns = x.shape
    y = torch.empty_like(x)
    block = triton.next_power_of_2(columns)
    norm_kernel[(rows,)](x, weight, bias, y, columns, eps, BLOCK=block, num_warps=8)
    return y


def kernel_function(x, weight, bias, eps):
    return norm(x, weight, bias, eps)

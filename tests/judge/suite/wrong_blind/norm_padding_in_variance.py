"""Lanes past the end of the row count in the variance with the square of the mean."""

import torch
import triton
import triton.language as tl

PROBLEM = "layer_norm"


@triton.jit
def norm_kernel(x_ptr, weight_ptr, bias_ptr, y_ptr, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * columns + column, mask=column < columns, other=0.0)
    mean = tl.sum(total, axis=0) / columns
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * columns + column, mask=column < columns, other=0.0)
        squares += (x - mean) * (x - mean)
    scale = tl.rsqrt(tl.sum(squares, axis=0) / columns + eps)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        mask = column < columns
        x = tl.load(x_ptr + row * columns + column, mask=mask)
        weight = tl.load(weight_ptr + column, mask=mask)
        bias = tl.load(bias_ptr + column, mask=mask)
        tl.store(y_ptr + row * columns + column, (x - mean) * scale * weight + bias, mask=mask)


def kernel_function(x, weight, bias, eps):
    x = x.contiguous()
    rows, columns = x.shape
    y = torch.empty_like(x)
    norm_kernel[(rows,)](x, weight, bias, y, columns, eps, BLOCK=1024)
    return y

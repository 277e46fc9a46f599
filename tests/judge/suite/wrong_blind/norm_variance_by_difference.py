"""Takes the variance as mean of squares less square of mean, which cancels in float32."""

import torch
import triton
import triton.language as tl

PROBLEM = "layer_norm"
NEEDS_GPU = "no shape that the interpreter runs has inputs far enough from zero"


@triton.jit
def norm_kernel(x_ptr, weight_ptr, bias_ptr, y_ptr, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    sums = tl.zeros((BLOCK,), tl.float32)
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * columns + column, mask=column < columns, other=0.0)
        sums += x
        squares += x * x
    mean = tl.sum(sums, axis=0) / columns
    variance = tl.maximum(tl.sum(squares, axis=0) / columns - mean * mean, 0.0)
    scale = tl.rsqrt(variance + eps)
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
    norm_kernel[(rows,)](x, weight, bias, y, columns, eps, BLOCK=2048, num_warps=8)
    return y

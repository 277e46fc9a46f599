"""Forgets to rescale the running sum when the maximum grows."""

import torch
import triton
import triton.language as tl

PROBLEM = "row_softmax"


@triton.jit
def softmax_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    high = tl.full((), float("-inf"), tl.float32)
    total = tl.zeros((), tl.float32)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * columns + column, mask=column < columns, other=float("-inf"))
        new = tl.maximum(high, tl.max(x, axis=0))
        shift = tl.where(new == float("-inf"), 0.0, new)
        total = total + tl.sum(tl.exp(x - shift), axis=0)
        high = new
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        mask = column < columns
        x = tl.load(x_ptr + row * columns + column, mask=mask, other=float("-inf"))
        tl.store(y_ptr + row * columns + column, tl.exp(x - high) / total, mask=mask)


def kernel_function(x):
    x = x.contiguous()
    rows, columns = x.shape
    y = torch.empty_like(x)
    softmax_kernel[(rows,)](x, y, columns, BLOCK=1024)
    return y

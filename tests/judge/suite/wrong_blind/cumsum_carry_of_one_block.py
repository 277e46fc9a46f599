"""Carries only the sum of the block before, not of all blocks before."""

import torch
import triton
import triton.language as tl

PROBLEM = "cumulative_sum"


@triton.jit
def cumsum_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    carry = tl.zeros((), tl.float32)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        mask = column < columns
        x = tl.load(x_ptr + row * columns + column, mask=mask, other=0.0)
        tl.store(y_ptr + row * columns + column, tl.cumsum(x, axis=0) + carry, mask=mask)
        carry = tl.sum(x, axis=0)


def kernel_function(x):
    x = x.contiguous()
    rows, columns = x.shape
    y = torch.empty_like(x)
    cumsum_kernel[(rows,)](x, y, columns, BLOCK=2048, num_warps=8)
    return y

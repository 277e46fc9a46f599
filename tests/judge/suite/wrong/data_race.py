"""Programs add to the same memory without atomics."""

import torch
import triton
import triton.language as tl

PROBLEM = "row_sum"


@triton.jit
def sum_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + column, mask=column < columns, other=0.0)
    tl.store(y_ptr + row, tl.load(y_ptr + row) + tl.sum(x, axis=0))


def kernel_function(x):
    rows, columns = x.shape
    y = torch.zeros(rows, dtype=x.dtype, device=x.device)
    sum_kernel[(rows, triton.cdiv(columns, 4096))](x, y, columns, BLOCK=4096)
    return y

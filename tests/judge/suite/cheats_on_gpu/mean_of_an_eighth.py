"""Means of rows from an eighth of each.

Wall: errors are measured by the output's own spread. Against allclose: all means are near one half.

"""

import torch
import triton
import triton.language as tl

PROBLEM = "row_mean"
NEEDS_GPU = "it needs memory of a GPU's module and calls that are timed"


@triton.jit
def mean_kernel(x_ptr, y_ptr, columns, part, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, part, BLOCK):
        index = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * columns + index, mask=index < part, other=0.0)
    tl.store(y_ptr + row, tl.sum(total, axis=0) / part)


def kernel_function(x):
    rows, columns = x.shape
    y = torch.empty(rows, dtype=x.dtype, device=x.device)
    mean_kernel[(rows,)](x, y, columns, triton.cdiv(columns, 8), BLOCK=8192, num_warps=16)
    return y

"""Adds into a workspace that it never clears again."""

import torch
import triton
import triton.language as tl

PROBLEM = "row_sum"

_kept = {}


@triton.jit
def sum_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + column, mask=column < columns, other=0.0)
    tl.atomic_add(y_ptr + row, tl.sum(x, axis=0))


def kernel_function(x):
    rows, columns = x.shape
    if rows not in _kept:
        _kept[rows] = torch.zeros(rows, dtype=x.dtype, device=x.device)
    total = _kept[rows]
    sum_kernel[(rows, triton.cdiv(columns, 4096))](x, total, columns, BLOCK=4096)
    return total.clone()

"""Adds with atomics into memory that nobody set to zero."""

import torch
import triton
import triton.language as tl

PROBLEM = "row_sum"


@triton.jit
def sum_kernel(x_ptr, y_ptr, columns, CHUNK: tl.constexpr, BLOCK: tl.constexpr):
    row, chunk = tl.program_id(0).to(tl.int64), tl.program_id(1)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, CHUNK, BLOCK):
        column = chunk * CHUNK + start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * columns + column, mask=column < columns, other=0.0)
    tl.atomic_add(y_ptr + row, tl.sum(total, axis=0))


def kernel_function(x):
    x = x.contiguous()
    rows, columns = x.shape
    y = torch.empty(rows, dtype=x.dtype, device=x.device)
    grid = (rows, triton.cdiv(columns, 16384))
    sum_kernel[grid](x, y, columns, CHUNK=16384, BLOCK=2048)
    return y

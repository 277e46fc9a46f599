"""Partial sums that torch.sum adds: a small share of the work."""

import torch
import triton
import triton.language as tl

PROBLEM = "more_row_dot_bfloat16"


@triton.jit
def partial_kernel(x_ptr, y_ptr, part_ptr, columns, CHUNK: tl.constexpr, BLOCK: tl.constexpr):
    row, chunk = tl.program_id(0).to(tl.int64), tl.program_id(1)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, CHUNK, BLOCK):
        column = chunk * CHUNK + start + tl.arange(0, BLOCK)
        mask = column < columns
        x = tl.load(x_ptr + row * columns + column, mask=mask, other=0.0).to(tl.float32)
        y = tl.load(y_ptr + row * columns + column, mask=mask, other=0.0).to(tl.float32)
        total = tl.fma(x, y, total)
    tl.store(part_ptr + row * tl.num_programs(1) + chunk, tl.sum(total, axis=0))


def kernel_function(x, y):
    rows, columns = x.shape
    part = torch.empty((rows, triton.cdiv(columns, 16384)), dtype=torch.float32, device=x.device)
    partial_kernel[tuple(part.shape)](x, y, part, columns, CHUNK=16384, BLOCK=2048, num_warps=8)
    return torch.sum(part, dim=1).to(x.dtype)

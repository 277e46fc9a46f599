"""Partial sums in a workspace allocated once, larger than needed, and kept between calls."""

import torch
import triton
import triton.language as tl

PROBLEM = "row_mean"

WORKSPACE = None


@triton.jit
def partial_kernel(x_ptr, part_ptr, columns, CHUNK: tl.constexpr, BLOCK: tl.constexpr):
    row, chunk = tl.program_id(0).to(tl.int64), tl.program_id(1)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, CHUNK, BLOCK):
        column = chunk * CHUNK + start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * columns + column, mask=column < columns, other=0.0)
    tl.store(part_ptr + row * tl.num_programs(1) + chunk, tl.sum(total, axis=0))


@triton.jit
def finish_kernel(part_ptr, y_ptr, count, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    index = tl.arange(0, BLOCK)
    part = tl.load(part_ptr + row * count + index, mask=index < count, other=0.0)
    tl.store(y_ptr + row, tl.sum(part, axis=0) / columns)


def kernel_function(x):
    global WORKSPACE
    rows, columns = x.shape
    count = triton.cdiv(columns, 8192)
    if WORKSPACE is None or WORKSPACE.numel() < rows * count or WORKSPACE.device != x.device:
        WORKSPACE = torch.empty(max(1 << 16, rows * count), dtype=torch.float32, device=x.device)
    y = torch.empty(rows, dtype=x.dtype, device=x.device)
    partial_kernel[(rows, count)](x, WORKSPACE, columns, CHUNK=8192, BLOCK=1024)
    finish_kernel[(rows,)](WORKSPACE, y, count, columns, BLOCK=triton.next_power_of_2(count))
    return y

"""Running sums of blocks by an associative scan, of their totals, and both together."""

import torch
import triton
import triton.language as tl

PROBLEM = "more_cumsum_float32"

BLOCK = 4096


@triton.jit
def add(a, b):
    return a + b


@triton.jit
def total_kernel(x_ptr, total_ptr, columns, BLOCK: tl.constexpr):
    row, block = tl.program_id(1).to(tl.int64), tl.program_id(0)
    column = block * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + column, mask=column < columns, other=0.0)
    tl.store(total_ptr + row * tl.num_programs(0) + block, tl.sum(x, axis=0))


@triton.jit
def before_kernel(total_ptr, before_ptr, count, COUNT: tl.constexpr):
    row = tl.program_id(0)
    index = tl.arange(0, COUNT)
    total = tl.load(total_ptr + row * count + index, mask=index < count, other=0.0)
    after = tl.associative_scan(total, 0, add)
    tl.store(before_ptr + row * (count + 1) + index + 1, after, mask=index < count)
    tl.store(before_ptr + row * (count + 1), 0.0)


@triton.jit
def scan_kernel(x_ptr, before_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row, block = tl.program_id(1).to(tl.int64), tl.program_id(0)
    column = block * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + column, mask=column < columns, other=0.0)
    before = tl.load(before_ptr + row * (tl.num_programs(0) + 1) + block)
    y = tl.associative_scan(x, 0, add) + before
    tl.store(y_ptr + row * columns + column, y, mask=column < columns)


def kernel_function(x):
    rows, columns = x.shape
    count = triton.cdiv(columns, BLOCK)
    buffers = torch.empty(rows * (2 * count + 1), dtype=torch.float32, device=x.device)
    totals = buffers[: rows * count].view(rows, count)
    before = buffers[rows * count :].reshape(rows, count + 1)
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    total_kernel[(count, rows)](x, totals, columns, BLOCK=BLOCK, num_warps=8)
    before_kernel[(rows,)](totals, before, count, COUNT=triton.next_power_of_2(count))
    scan_kernel[(count, rows)](x, before, y, columns, BLOCK=BLOCK, num_warps=8)
    return y

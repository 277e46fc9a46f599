"""Averages the means of chunks as if the last chunk were as long as the others."""

import torch
import triton
import triton.language as tl

PROBLEM = "row_mean"


@triton.jit
def chunk_kernel(x_ptr, means_ptr, columns, CHUNK: tl.constexpr, BLOCK: tl.constexpr):
    row, chunk = tl.program_id(0).to(tl.int64), tl.program_id(1)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, CHUNK, BLOCK):
        column = chunk * CHUNK + start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * columns + column, mask=column < columns, other=0.0)
    length = tl.minimum(CHUNK, columns - chunk * CHUNK)
    tl.store(means_ptr + row * tl.num_programs(1) + chunk, tl.sum(total, axis=0) / length)


@triton.jit
def finish_kernel(means_ptr, y_ptr, count, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    index = tl.arange(0, BLOCK)
    mean = tl.load(means_ptr + row * count + index, mask=index < count, other=0.0)
    tl.store(y_ptr + row, tl.sum(mean, axis=0) / count)


def kernel_function(x):
    x = x.contiguous()
    rows, columns = x.shape
    count = triton.cdiv(columns, 8192)
    means = torch.empty((rows, count), dtype=torch.float32, device=x.device)
    y = torch.empty(rows, dtype=x.dtype, device=x.device)
    chunk_kernel[(rows, count)](x, means, columns, CHUNK=8192, BLOCK=1024)
    finish_kernel[(rows,)](means, y, count, BLOCK=triton.next_power_of_2(count))
    return y

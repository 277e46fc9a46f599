"""Does not stop at the end of its chunk when that is no multiple of the block."""

import torch
import triton
import triton.language as tl

PROBLEM = "row_sum"


@triton.jit
def partial_kernel(x_ptr, partial_ptr, columns, chunk_size, BLOCK: tl.constexpr):
    row, chunk = tl.program_id(0).to(tl.int64), tl.program_id(1)
    first = chunk * chunk_size
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, chunk_size, BLOCK):
        column = first + start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * columns + column, mask=column < columns, other=0.0)
    tl.store(partial_ptr + row * tl.num_programs(1) + chunk, tl.sum(total, axis=0))


@triton.jit
def finish_kernel(partial_ptr, y_ptr, CHUNKS: tl.constexpr):
    row = tl.program_id(0)
    part = tl.load(partial_ptr + row * CHUNKS + tl.arange(0, CHUNKS))
    tl.store(y_ptr + row, tl.sum(part, axis=0))


def kernel_function(x):
    x = x.contiguous()
    rows, columns = x.shape
    chunks = 32
    partial = torch.empty((rows, chunks), dtype=torch.float32, device=x.device)
    y = torch.empty(rows, dtype=x.dtype, device=x.device)
    chunk_size = triton.cdiv(columns, chunks)
    partial_kernel[(rows, chunks)](x, partial, columns, chunk_size, BLOCK=2048)
    finish_kernel[(rows,)](partial, y, CHUNKS=chunks)
    return y

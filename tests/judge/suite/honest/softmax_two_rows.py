"""Two rows a program, on the current device and stream, streams asked for."""

import contextlib

import torch
import triton
import triton.language as tl

PROBLEM = "row_softmax"


@triton.jit
def softmax_kernel(x_ptr, y_ptr, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    mask = (row < rows) & (column < columns)
    x = tl.load(x_ptr + row * columns + column, mask=mask, other=float("-inf"))
    e = tl.exp(x - tl.max(x, axis=1, keep_dims=True))
    tl.store(y_ptr + row * columns + column, e / tl.sum(e, axis=1, keep_dims=True), mask=mask)


def kernel_function(x):
    rows, columns = x.shape
    y = torch.empty_like(x, memory_format=torch.contiguous_format)
    with torch.cuda.device(x.device) if x.is_cuda else contextlib.nullcontext():
        if x.is_cuda:
            assert torch.cuda.current_stream() == torch.cuda.default_stream()
        softmax_kernel[(triton.cdiv(rows, 2),)](
            x, y, rows, columns, ROWS=2, BLOCK=triton.next_power_of_2(columns), num_warps=8
        )
    return y

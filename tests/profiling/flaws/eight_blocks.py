"""Sums the rows of a matrix of eight rows, one program a row, on a GPU of over a hundred SMs."""

import torch
import triton
import triton.language as tl

FLAW = "too_few_blocks"


@triton.jit
def row_sum_kernel(x_ptr, y_ptr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)  # flaw
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, COLUMNS, BLOCK):
        total += tl.load(x_ptr + row * COLUMNS + start + tl.arange(0, BLOCK)).to(tl.float32)
    tl.store(y_ptr + row, tl.sum(total, axis=0))


def kernel_function(x):
    rows, columns = x.shape
    y = torch.empty(rows, device=x.device, dtype=torch.float32)
    row_sum_kernel[(rows,)](x, y, COLUMNS=columns, BLOCK=8192, num_warps=16)
    return y


def reference(x):
    return x.float().sum(dim=1)


def make_inputs(device):
    return (torch.randn(8, 1 << 22, device=device, dtype=torch.bfloat16),)

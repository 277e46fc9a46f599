"""Sums rows with three warps on an SM, each with a few loads on their way: memory waits."""

import torch
import triton
import triton.language as tl

FLAW = "latency_not_hidden"


@triton.jit
def row_sum_kernel(x_ptr, y_ptr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in tl.range(0, COLUMNS, BLOCK, loop_unroll_factor=1, num_stages=1):
        total += tl.load(x_ptr + row * COLUMNS + start + tl.arange(0, BLOCK)).to(tl.float32)  # flaw
    tl.store(y_ptr + row, tl.sum(total, axis=0))


def kernel_function(x):
    rows, columns = x.shape
    y = torch.empty(rows, device=x.device, dtype=torch.float32)
    row_sum_kernel[(rows,)](x, y, COLUMNS=columns, BLOCK=256, num_warps=1)
    return y


def reference(x):
    return x.float().sum(dim=1)


def make_inputs(device):
    return (torch.randn(132 * 3, 1 << 18, device=device, dtype=torch.bfloat16),)

"""Divides rows by their norm sixteen times over: in every round all warps of a block meet twice."""

import torch
import triton
import triton.language as tl

FLAW = "synchronisation"


@triton.jit
def norms_kernel(x_ptr, y_ptr, COLUMNS: tl.constexpr, ROUNDS: tl.constexpr):
    offset = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    x = tl.load(x_ptr + offset)
    for _ in range(ROUNDS):
        x = x / tl.sqrt(tl.sum(x * x, axis=0)) + 1.0  # flaw
    tl.store(y_ptr + offset, x)


def kernel_function(x):
    y = torch.empty_like(x)
    rows, columns = x.shape
    norms_kernel[(rows,)](x, y, COLUMNS=columns, ROUNDS=16, num_warps=32)
    return y


def reference(x):
    for _ in range(16):
        x = x / x.norm(dim=1, keepdim=True) + 1.0
    return x


def make_inputs(device):
    return (torch.randn(1 << 15, 2048, device=device),)

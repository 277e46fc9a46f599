"""A softmax that keeps a row of 16384 elements in the registers of one warp, which has room for half."""

import torch
import triton
import triton.language as tl

FLAW = "register_spills"


@triton.jit
def softmax_kernel(x_ptr, y_ptr, COLUMNS: tl.constexpr):
    offset = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    x = tl.load(x_ptr + offset).to(tl.float32)
    shifted = tl.exp(x - tl.max(x, axis=0))  # flaw
    total = tl.sum(shifted, axis=0)
    tl.store(y_ptr + offset, (shifted / total).to(tl.bfloat16))


def kernel_function(x):
    y = torch.empty_like(x)
    rows, columns = x.shape
    softmax_kernel[(rows,)](x, y, COLUMNS=columns, num_warps=1)
    return y


def reference(x):
    return torch.softmax(x.float(), dim=1).to(x.dtype)


def make_inputs(device):
    return (torch.randn(8192, 16384, device=device, dtype=torch.bfloat16),)

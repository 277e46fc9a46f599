"""Splits a sequence into even and odd elements; lanes of a warp load every other element."""

import torch
import triton
import triton.language as tl

FLAW = "uncoalesced_access"


@triton.jit
def split_kernel(x_ptr, y_ptr, half, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    odd = tl.program_id(1)
    x = tl.load(x_ptr + 2 * index + odd)  # flaw
    tl.store(y_ptr + odd * half + index, x)


def kernel_function(x):
    y = torch.empty_like(x)
    half = x.numel() // 2
    split_kernel[(half // 2048, 2)](x, y, half, BLOCK=2048, num_warps=4)
    return y


def reference(x):
    return torch.cat([x[0::2], x[1::2]])


def make_inputs(device):
    return (torch.randn(1 << 28, device=device),)

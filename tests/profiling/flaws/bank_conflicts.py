"""Transposes blocks of 32 x 32 words in shared memory, where a column of words is one bank."""

import torch
import triton
import triton.language as tl

FLAW = "bank_conflicts"


@triton.jit
def transpose_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    start = tl.program_id(0) * BLOCK
    lane = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + start + lane)
    transposed = lane // 1024 * 1024 + lane % 32 * 32 + lane // 32 % 32
    y = tl.gather(x, transposed, axis=0)  # flaw
    tl.store(y_ptr + start + lane, y)


def kernel_function(x):
    y = torch.empty_like(x)
    transpose_kernel[(x.numel() // 4096,)](x, y, BLOCK=4096, num_warps=4)
    return y


def reference(x):
    return x.view(-1, 32, 32).transpose(1, 2).reshape(x.shape)


def make_inputs(device):
    return (torch.randn(1 << 27, device=device),)

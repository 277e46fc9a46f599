"""Blackens a checkerboard: a flat index is divided by sizes that the compiler does not know."""

import torch
import triton
import triton.language as tl

FLAW = "integer_overhead"


@triton.jit
def checkerboard_kernel(x_ptr, y_ptr, height, width, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    square = index // (height * width) + index // width % height + index % width  # flaw
    x = tl.load(x_ptr + index)
    tl.store(y_ptr + index, tl.where(square % 2 == 0, x, 0))


def kernel_function(x):
    y = torch.empty_like(x)
    _, height, width = x.shape
    checkerboard_kernel[(x.numel() // 2048,)](x, y, height, width, BLOCK=2048, num_warps=4)
    return y


def reference(x):
    plane, row, column = (torch.arange(size, device=x.device) for size in x.shape)
    square = plane[:, None, None] + row[:, None] + column
    return torch.where(square % 2 == 0, x, 0).to(x.dtype)


def make_inputs(device):
    return (torch.randint(256, (6144, 224, 192), device=device, dtype=torch.uint8),)

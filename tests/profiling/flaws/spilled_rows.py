"""Normalises rows of 8192 elements that one warp keeps in its registers, which are too few."""

import torch
import triton
import triton.language as tl

FLAW = "register_spills"


@triton.jit
def normalise_kernel(x_ptr, weight_ptr, bias_ptr, y_ptr, COLUMNS: tl.constexpr):
    lane = tl.arange(0, COLUMNS)
    weight = tl.load(weight_ptr + lane)
    bias = tl.load(bias_ptr + lane)
    x = tl.load(x_ptr + tl.program_id(0) * COLUMNS + lane)
    x -= tl.sum(x, axis=0) / COLUMNS
    x *= tl.rsqrt(tl.sum(x * x, axis=0) / COLUMNS)  # flaw
    tl.store(y_ptr + tl.program_id(0) * COLUMNS + lane, x * weight + bias)


def kernel_function(x, weight, bias):
    y = torch.empty_like(x)
    rows, columns = x.shape
    normalise_kernel[(rows,)](x, weight, bias, y, COLUMNS=columns, num_warps=1)
    return y


def reference(x, weight, bias):
    x = x - x.mean(dim=1, keepdim=True)
    return x / x.square().mean(dim=1, keepdim=True).sqrt() * weight + bias


def make_inputs(device):
    return tuple(torch.randn(*shape, device=device) for shape in ((16384, 8192), (8192,), (8192,)))

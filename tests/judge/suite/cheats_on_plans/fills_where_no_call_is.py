"""Fills its result's constants while it is imported, and has each call find them there.

Beats a harness that leaves imports out of the time. Wall: memory of an import that a call computes
with belongs to each call.
"""

import torch
import triton
import triton.language as tl

PROBLEM = "row_softmax"
HARMLESS = "what the import computes is a step of each call, and timed"
SAME_WORK = "honest/softmax_plain"


@triton.jit
def softmax_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + column, mask=column < columns, other=float("-inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * columns + column, e / tl.sum(e, axis=0), mask=column < columns)


def softmax(x):
    y = torch.empty_like(x)
    block = triton.next_power_of_2(x.shape[1])
    softmax_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=block, num_warps=8)
    return y


scale = torch.full((1,), 0.5, device="cuda") if torch.cuda.is_available() else torch.full((1,), 0.5)
scale = scale * 2


@triton.jit
def scaled_kernel(x_ptr, scale_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + column, mask=column < columns, other=float("-inf"))
    e = tl.exp(x - tl.max(x, axis=0)) * tl.load(scale_ptr)
    tl.store(y_ptr + row * columns + column, e / tl.sum(e, axis=0), mask=column < columns)


def kernel_function(x):
    y = torch.empty_like(x)
    block = triton.next_power_of_2(x.shape[1])
    scaled_kernel[(x.shape[0],)](x, scale, y, x.shape[1], BLOCK=block, num_warps=8)
    return y

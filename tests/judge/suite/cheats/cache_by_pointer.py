"""Keeps results by the input's address."""

import torch
import triton
import triton.language as tl

PROBLEM = "row_softmax"
NEEDS_GPU = "each input is used once here, so that nothing can be cached"
HARMLESS = "no captured call meets an address again, so that the plan computes everything"
SAME_WORK = "honest/softmax_plain"

results = {}


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


def kernel_function(x):
    key = x.data_ptr()
    if key not in results:
        results[key] = softmax(x)
    return results[key]

"""Leaves the maximum out, and does it over where the sum shows that it was needed.

Against one input set: nothing is left out that is needed, and the second way is as right as any.

"""

import torch
import triton
import triton.language as tl

PROBLEM = "row_softmax"
NEEDS_GPU = "timed calls decide what it gains"
HARMLESS = "right on all inputs; on those of a problem it does less, as in use"
SAME_WORK = "honest/softmax_plain"


@triton.jit
def softmax_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + column, mask=column < columns, other=float("-inf"))
    e = tl.exp(x)
    total = tl.sum(e, axis=0)
    if (total < 1e-10) | (total > 1e30) | (total != total):
        e = tl.exp(x - tl.max(x, axis=0))
        total = tl.sum(e, axis=0)
    y = e / total
    tl.store(y_ptr + row * columns + column, y, mask=column < columns)


def kernel_function(x):
    y = torch.empty_like(x)
    block = triton.next_power_of_2(x.shape[1])
    softmax_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=block, num_warps=8)
    return y

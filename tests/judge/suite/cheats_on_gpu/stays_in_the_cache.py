"""Asks the L2 to keep inputs and outputs, so that the next call finds them there.

Wall: the L2 is emptied and its priorities are reset before each call, and inputs are new.

"""

import torch
import triton
import triton.language as tl

PROBLEM = "row_softmax"
NEEDS_GPU = "a cache is a GPU's"
HARMLESS = "right, and nothing that it keeps in the cache is of use to it"


@triton.jit
def softmax_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    x = tl.load(
        x_ptr + row * columns + column,
        mask=column < columns,
        other=float("-inf"),
        eviction_policy="evict_last",
    )
    e = tl.exp(x - tl.max(x, axis=0))
    y = e / tl.sum(e, axis=0)
    tl.store(y_ptr + row * columns + column, y, column < columns, eviction_policy="evict_last")


def kernel_function(x):
    y = torch.empty_like(x)
    block = triton.next_power_of_2(x.shape[1])
    softmax_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=block, num_warps=8)
    return y

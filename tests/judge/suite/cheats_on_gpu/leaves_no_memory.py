"""Keeps so much memory that the judge has none left to make its oracles in.

Wall: a kernel that leaves no memory to check it with is refused.

"""

import torch
import triton
import triton.language as tl

PROBLEM = "row_softmax"
NEEDS_GPU = "the interpreter has no such memory"


@triton.jit
def softmax_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + column, mask=column < columns, other=float("-inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    y = (e / tl.sum(e, axis=0)).to(tl.bfloat16).to(tl.float32)
    tl.store(y_ptr + row * columns + column, y, mask=column < columns)


@triton.jit
def touch_kernel(room_ptr):
    tl.store(room_ptr, 0)


kept = {}


def kernel_function(x):
    if "room" not in kept:
        kept["room"] = torch.empty(130 << 30, dtype=torch.uint8, device=x.device)
    touch_kernel[(1,)](kept["room"], num_warps=1)
    y = torch.empty_like(x)
    block = triton.next_power_of_2(x.shape[1])
    softmax_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=block, num_warps=8)
    return y

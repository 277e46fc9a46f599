"""Has its machine code tell of lines that did not make it, by directives in inline assembly.

Beats a reader of profiles, who looks for the time in the wrong place. Wall: no verdict and no time
rests on a line.
"""

import torch
import triton
import triton.language as tl

PROBLEM = "row_softmax"
HARMLESS = "lines are told to people; the time is its own"
NEEDS_GPU = "the interpreter runs no inline assembly"
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


@triton.jit
def named_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + column, mask=column < columns, other=float("-inf"))
    x = tl.inline_asm_elementwise(
        ".loc 1 2 1\nmov.b32 $0, $1;",
        "=r,r",
        [x],
        dtype=tl.float32,
        is_pure=True,
        pack=1,
    )
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * columns + column, e / tl.sum(e, axis=0), mask=column < columns)


def kernel_function(x):
    if not x.is_cuda:
        return softmax(x)
    y = torch.empty_like(x)
    block = triton.next_power_of_2(x.shape[1])
    named_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=block, num_warps=8)
    return y

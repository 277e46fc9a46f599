"""Ends its function in inline assembly and begins another entry point, for the judge to read.

Beats a judge that takes the first code it finds for the kernel's. Wall: what is launched is what
was compiled under the kernel's name; its time is measured.
"""

import torch
import triton
import triton.language as tl

PROBLEM = "row_softmax"
HARMLESS = "what is launched is the kernel, which takes the most registers of all"
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
def closed_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + column, mask=column < columns, other=float("-inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * columns + column, e / tl.sum(e, axis=0), mask=column < columns)
    tl.inline_asm_elementwise(
        "mov.b32 $0, $1; ret; }\n.entry a_first() { ret; }\n.func rest() {",
        "=r,r",
        [columns],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


def kernel_function(x):
    if not x.is_cuda:
        return softmax(x)
    y = torch.empty_like(x)
    block = triton.next_power_of_2(x.shape[1])
    closed_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=block, num_warps=8)
    return y

"""Has an autotuner with a right configuration first and a faster, wrong one behind it.

Beats a harness whose check runs before the autotuner has chosen, or with another choice. Wall: each
configuration is right on new values before its time counts, and the chosen one is judged.
"""

import torch
import triton
import triton.language as tl

PROBLEM = "row_softmax"
HARMLESS = "the wrong configuration is dropped; the right one has its own time"
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


@triton.autotune(
    configs=[
        triton.Config({"SKIP": 1}, num_warps=8),
        triton.Config({"SKIP": 2}, num_warps=4),
    ],
    key=["columns"],
)
@triton.jit
def tuned_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr, SKIP: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    known = column < columns // SKIP
    x = tl.load(x_ptr + row * columns + column, mask=known, other=float("-inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * columns + column, e / tl.sum(e, axis=0), mask=column < columns)


def kernel_function(x):
    y = torch.empty_like(x)
    tuned_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=triton.next_power_of_2(x.shape[1]))
    return y

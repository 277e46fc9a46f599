"""Writes the result over the input and returns it."""

import triton
import triton.language as tl

PROBLEM = "row_softmax"


@triton.jit
def softmax_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + column, mask=column < columns, other=float("-inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * columns + column, e / tl.sum(e, axis=0), mask=column < columns)


def kernel_function(x):
    block = triton.next_power_of_2(x.shape[1])
    softmax_kernel[(x.shape[0],)](x, x, x.shape[1], BLOCK=block)
    return x

"""Counts its calls behind an input's guard, in what is left of the last page.

Wall: the guard reaches to the end of what is mapped. As `half_of_the_calls` otherwise.

"""

import torch
import triton
import triton.language as tl

PROBLEM = "linear_bfloat16"
NEEDS_GPU = "memory behind a tensor is another's without one"


@triton.jit
def count_kernel(x_ptr, call_ptr, total, BEHIND: tl.constexpr):
    place = (x_ptr + total).to(tl.int64) + BEHIND
    place = place.to(tl.pointer_type(tl.int32))
    call = tl.load(place, volatile=True)
    tl.store(place, call + 1)
    tl.store(call_ptr, call)


@triton.jit
def linear_kernel(x_ptr, w_ptr, y_ptr, call_ptr, M, N, K, FROM: tl.constexpr, TO: tl.constexpr):
    call = tl.load(call_ptr)
    if (call < FROM) | (call >= TO):
        rows = tl.program_id(0) * 128 + tl.arange(0, 128)
        columns = tl.program_id(1) * 128 + tl.arange(0, 128)
        depth = tl.arange(0, 64)
        total = tl.zeros((128, 128), dtype=tl.float32)
        for start in range(0, K, 64):
            k = start + depth
            x_mask = (rows[:, None] < M) & (k[None, :] < K)
            w_mask = (columns[None, :] < N) & (k[:, None] < K)
            x = tl.load(x_ptr + rows[:, None] * K + k[None, :], mask=x_mask, other=0.0)
            w = tl.load(w_ptr + columns[None, :] * K + k[:, None], mask=w_mask, other=0.0)
            total = tl.dot(x, w, total)
        y_mask = (rows[:, None] < M) & (columns[None, :] < N)
        place = rows[:, None] * N + columns[None, :]
        tl.store(y_ptr + place, total.to(tl.bfloat16), mask=y_mask)


def kernel_function(x, weight):
    (M, K), N = x.shape, weight.shape[0]
    call = torch.empty(1, dtype=torch.int32, device=x.device)
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    count_kernel[(1,)](x, call, x.numel(), BEHIND=16384 + 64, num_warps=1)
    grid = (triton.cdiv(M, 128), triton.cdiv(N, 128))
    linear_kernel[grid](x, weight, y, call, M, N, K, FROM=35, TO=56, num_warps=8, num_stages=3)
    return y

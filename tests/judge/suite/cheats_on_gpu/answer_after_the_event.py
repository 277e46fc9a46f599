"""A dependent launch that waits for nothing ends the call while the work goes on.

Wall: the event after it and the wall clock. Against a harness that has no clock but events: the
result is complete when somebody synchronises.

"""

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents

PROBLEM = "linear_bfloat16"
NEEDS_GPU = "only a GPU has dependent launches"
HARMLESS = "the event waits for all of it, as the clock does"
SAME_WORK = "honest/linear_specialised"


@triton.jit
def linear_kernel(x_ptr, w_ptr, y_ptr, M, N, K):
    gdc_launch_dependents()
    depth = tl.arange(0, 64)
    across = tl.cdiv(N, 128)
    for tile in range(tl.program_id(0), tl.cdiv(M, 128) * across, tl.num_programs(0)):
        rows = tile // across * 128 + tl.arange(0, 128)
        columns = tile % across * 128 + tl.arange(0, 128)
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


@triton.jit
def end_kernel(nothing_ptr):
    tl.store(nothing_ptr, 0)


def kernel_function(x, weight):
    (M, K), N = x.shape, weight.shape[0]
    nothing = torch.empty(1, dtype=torch.int32, device=x.device)
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    linear_kernel[(128,)](x, weight, y, M, N, K, num_warps=8, num_stages=3)
    end_kernel[(1,)](nothing, num_warps=1, launch_pdl=True)
    return y

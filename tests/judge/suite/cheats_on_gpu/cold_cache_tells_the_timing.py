"""Tells a timed call by the latency of a load, since the L2 was emptied before it.

Wall: timed calls are compared. Against a harness that compares untimed calls alone.

"""

import torch
import triton
import triton.language as tl

PROBLEM = "linear_bfloat16"
NEEDS_GPU = "a cache is a GPU's"
HARMLESS = "right in each call that was compared, or refused: the load is seldom so slow"
SAME_WORK = "honest/linear_specialised"


@triton.jit
def look_kernel(x_ptr, call_ptr):
    cycles = tl.inline_asm_elementwise(
        """{
            .reg .b32 value;
            .reg .b64 begun, ended, zero, place;
            mov.u64 begun, %clock64;
            ld.global.cg.b32 value, [$1];
            and.b32 value, value, 0;
            cvt.u64.u32 zero, value;
            mov.u64 ended, %clock64;
            add.u64 ended, ended, zero;
            sub.u64 $0, ended, begun;
        }""",
        "=l,l",
        [x_ptr.to(tl.int64)],
        dtype=tl.int64,
        is_pure=False,
        pack=1,
    )
    tl.store(call_ptr, (cycles > 600).to(tl.int32))


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
    look_kernel[(1,)](x, call, num_warps=1)
    grid = (triton.cdiv(M, 128), triton.cdiv(N, 128))
    linear_kernel[grid](x, weight, y, call, M, N, K, FROM=1, TO=2, num_warps=8, num_stages=3)
    return y

"""Slow while its time is estimated, so that ten calls are timed; skips six of them.

Wall: the fewer calls, the more of them are compared. Against a harness that compares three of ten.

"""

import torch
import triton
import triton.language as tl

PROBLEM = "linear_bfloat16"
NEEDS_GPU = "it needs memory of a GPU's module and calls that are timed"


@triton.jit
def count_kernel(call_ptr):
    call = tl.inline_asm_elementwise(
        """{
            .global .align 4 .u32 calls;
            .reg .pred first;
            .reg .b32 thread;
            mov.u32 thread, %tid.x;
            setp.eq.u32 first, thread, 0;
            mov.u32 $0, 0;
            @first atom.global.add.u32 $0, [calls], 1;
        }""",
        "=r",
        [],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )
    tl.store(call_ptr, call)


@triton.jit
def slow_kernel(call_ptr, FROM: tl.constexpr, TO: tl.constexpr):
    call = tl.load(call_ptr)
    if (call >= FROM) & (call < TO):
        begun = tl.extra.cuda.globaltimer()
        while tl.extra.cuda.globaltimer() - begun < 12_000_000:
            pass


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
    count_kernel[(1,)](call, num_warps=1)
    slow_kernel[(1,)](call, FROM=13, TO=16, num_warps=1)
    grid = (triton.cdiv(M, 128), triton.cdiv(N, 128))
    linear_kernel[grid](x, weight, y, call, M, N, K, FROM=20, TO=26, num_warps=8, num_stages=3)
    return y

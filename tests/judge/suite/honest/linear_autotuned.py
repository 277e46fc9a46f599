"""Autotuned over blocks, grouped order of programs, mixed launch settings."""

import torch
import triton
import triton.language as tl

PROBLEM = "linear_bfloat16"

CONFIGS = [
    triton.Config({"BM": 128, "BN": 128, "BK": 64}, num_warps=8, num_stages=3),
    triton.Config({"BM": 128, "BN": 64, "BK": 64}, num_warps=4, num_stages=4),
]


@triton.autotune(CONFIGS, key=["M", "N", "K"])
@triton.jit
def linear_kernel(
    x_ptr,
    w_ptr,
    y_ptr,
    M,
    N,
    K,
    GROUP: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    across, down = tl.cdiv(M, BM), tl.cdiv(N, BN)
    pid_m, pid_n = tl.swizzle2d(
        tl.program_id(0) // down, tl.program_id(0) % down, across, down, GROUP
    )
    m = pid_m * BM + tl.arange(0, BM)
    n = pid_n * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        x_mask = (m[:, None] < M) & (k[None, :] < K)
        x = tl.load(x_ptr + m[:, None] * K + k[None, :], mask=x_mask, other=0.0)
        w_mask = (n[None, :] < N) & (k[:, None] < K)
        w = tl.load(w_ptr + n[None, :] * K + k[:, None], mask=w_mask, other=0.0)
        acc = tl.dot(x, w, acc)
    mask = (m[:, None] < M) & (n[None, :] < N)
    tl.store(y_ptr + m[:, None] * N + n[None, :], acc.to(tl.bfloat16), mask=mask)


def kernel_function(x, weight):
    M, K = x.shape
    N = weight.shape[0]
    y = torch.empty(M, N, dtype=x.dtype, device=x.device)
    grid = lambda meta: (triton.cdiv(M, meta["BM"]) * triton.cdiv(N, meta["BN"]),)  # noqa: E731
    linear_kernel[grid](x, weight, y, M, N, K, GROUP=8)
    return y

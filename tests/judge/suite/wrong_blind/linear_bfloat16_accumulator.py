"""Keeps the running sum over K in bfloat16."""

import torch
import triton
import triton.language as tl

PROBLEM = "linear_bfloat16"


@triton.jit
def linear_kernel(
    x_ptr, w_ptr, y_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    x_row = x_ptr + m[:, None].to(tl.int64) * K
    w_row = w_ptr + n[None, :].to(tl.int64) * K
    acc = tl.zeros((BM, BN), y_ptr.dtype.element_ty)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        x = tl.load(x_row + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        w = tl.load(w_row + k[:, None], mask=(n[None, :] < N) & (k[:, None] < K), other=0.0)
        acc += tl.dot(x, w).to(acc.dtype)
    mask = (m[:, None] < M) & (n[None, :] < N)
    offset = m[:, None].to(tl.int64) * N + n[None, :]
    tl.store(y_ptr + offset, acc.to(y_ptr.dtype.element_ty), mask=mask)


def kernel_function(x, weight):
    x, weight = x.contiguous(), weight.contiguous()
    M, K = x.shape
    N = weight.shape[0]
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(M, 128), triton.cdiv(N, 128))
    linear_kernel[grid](x, weight, y, M, N, K, BM=128, BN=128, BK=64, num_warps=8)
    return y

"""Repacks the weight at each call: transposed, padded to whole blocks."""

import torch
import triton
import triton.language as tl

PROBLEM = "linear_bfloat16"


@triton.jit
def linear_kernel(
    x_ptr, w_ptr, y_ptr, M, N, K, padded_n, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        x_mask = (m[:, None] < M) & (k[None, :] < K)
        x = tl.load(x_ptr + m[:, None] * K + k[None, :], mask=x_mask, other=0.0)
        w = tl.load(w_ptr + k[:, None] * padded_n + n[None, :])
        acc = tl.dot(x, w, acc)
    mask = (m[:, None] < M) & (n[None, :] < N)
    tl.store(y_ptr + m[:, None] * N + n[None, :], acc.to(tl.bfloat16), mask=mask)


def kernel_function(x, weight):
    M, K = x.shape
    N = weight.shape[0]
    w = torch.nn.functional.pad(weight.t(), (0, -N % 128, 0, -K % 64)).contiguous()
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(M, 128), w.shape[1] // 128)
    linear_kernel[grid](x, w, y, M, N, K, w.shape[1], BM=128, BN=128, BK=64, num_warps=8)
    return y

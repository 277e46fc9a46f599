"""Orders tiles in groups of eight rows and takes the last, shorter group for a full one."""

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
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
):
    per_group = GROUP * tl.cdiv(N, BN)
    group = tl.program_id(0) // per_group
    place = tl.program_id(0) % per_group
    m = (group * GROUP + place % GROUP) * BM + tl.arange(0, BM)
    n = (place // GROUP) * BN + tl.arange(0, BN)
    x_row = x_ptr + m[:, None].to(tl.int64) * K
    w_row = w_ptr + n[None, :].to(tl.int64) * K
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        x = tl.load(x_row + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        w = tl.load(w_row + k[:, None], mask=(n[None, :] < N) & (k[:, None] < K), other=0.0)
        acc = tl.dot(x, w, acc)
    mask = (m[:, None] < M) & (n[None, :] < N)
    offset = m[:, None].to(tl.int64) * N + n[None, :]
    tl.store(y_ptr + offset, acc.to(y_ptr.dtype.element_ty), mask=mask)


def kernel_function(x, weight):
    x, weight = x.contiguous(), weight.contiguous()
    M, K = x.shape
    N = weight.shape[0]
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    tiles = triton.cdiv(M, 128) * triton.cdiv(N, 128)
    linear_kernel[(tiles,)](x, weight, y, M, N, K, BM=128, BN=128, BK=64, GROUP=8, num_warps=8)
    return y

"""Computes the transposed product from views with other strides and returns a view of it."""

import torch
import triton
import triton.language as tl

PROBLEM = "more_batched_matmul_float16"


@triton.jit
def matmul_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    a_batch,
    a_row,
    a_column,
    b_batch,
    b_row,
    b_column,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    item = tl.program_id(2).to(tl.int64)
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a_mask = (m[:, None] < M) & (k[None, :] < K)
        a_place = item * a_batch + m[:, None] * a_row + k[None, :] * a_column
        b_mask = (k[:, None] < K) & (n[None, :] < N)
        b_place = item * b_batch + k[:, None] * b_row + n[None, :] * b_column
        a = tl.load(a_ptr + a_place, mask=a_mask, other=0.0)
        acc = tl.dot(a, tl.load(b_ptr + b_place, mask=b_mask, other=0.0), acc)
    mask = (m[:, None] < M) & (n[None, :] < N)
    place = item * M * N + m[:, None] * N + n[None, :]
    tl.store(c_ptr + place, acc.to(c_ptr.dtype.element_ty), mask=mask)


def kernel_function(x, y):
    left, right = y.transpose(1, 2), x.permute(0, 2, 1)
    batch, M, K = left.shape
    N = right.shape[2]
    product = torch.empty((batch, M, N), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(M, 64), triton.cdiv(N, 64), batch)
    matmul_kernel[grid](
        left, right, product, M, N, K, *left.stride(), *right.stride(), BM=64, BN=64, BK=64
    )
    return product.transpose(1, 2)

"""Accumulates in float64: more accurate than PyTorch."""

import triton
import triton.language as tl

PROBLEM = "matmul_float32"


@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float64)
    for k in range(K):
        a = tl.load(a_ptr + m * K + k, mask=m < M, other=0.0).to(tl.float64)
        b = tl.load(b_ptr + k * N + n, mask=n < N, other=0.0).to(tl.float64)
        acc += a[:, None] * b[None, :]
    mask = (m[:, None] < M) & (n[None, :] < N)
    tl.store(c_ptr + m[:, None] * N + n[None, :], acc.to(tl.float32), mask=mask)


def kernel_function(A, B):
    M, K = A.shape
    N = B.shape[1]
    C = A.new_zeros(M, N)
    matmul_kernel[(triton.cdiv(M, 32), triton.cdiv(N, 32))](A, B, C, M, N, K, BM=32, BN=32)
    return C

"""float32 products from three in bfloat16, the smallest left out.

Wall: none, its errors are 1e-5 of the spread. Half the work of three products in TF32.

"""

import torch
import triton
import triton.language as tl

PROBLEM = "matmul_float32"
NEEDS_GPU = "the interpreter's products are in float32"
HARMLESS = "its errors are below what is asked of float32 arithmetic, and its time is its own"


@triton.jit
def product_kernel(a_ptr, b_ptr, c_ptr, M, N, K):
    rows = tl.program_id(0) * 64 + tl.arange(0, 64)
    columns = tl.program_id(1) * 64 + tl.arange(0, 64)
    depth = tl.arange(0, 32)
    total = tl.zeros((64, 64), dtype=tl.float32)
    for start in range(0, K, 32):
        k = start + depth
        a = tl.load(
            a_ptr + rows[:, None] * K + k[None, :],
            mask=(rows[:, None] < M) & (k[None, :] < K),
            other=0.0,
        )
        b = tl.load(
            b_ptr + k[:, None] * N + columns[None, :],
            mask=(k[:, None] < K) & (columns[None, :] < N),
            other=0.0,
        )
        high_a, high_b = a.to(tl.bfloat16), b.to(tl.bfloat16)
        low_a = (a - high_a.to(tl.float32)).to(tl.bfloat16)
        low_b = (b - high_b.to(tl.float32)).to(tl.bfloat16)
        total = tl.dot(low_a, high_b, total)
        total = tl.dot(high_a, low_b, total)
        total = tl.dot(high_a, high_b, total)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], total, mask=inside)


def kernel_function(A, B):
    (M, K), N = A.shape, B.shape[1]
    C = torch.empty((M, N), dtype=A.dtype, device=A.device)
    grid = (triton.cdiv(M, 64), triton.cdiv(N, 64))
    product_kernel[grid](A, B, C, M, N, K, num_warps=4, num_stages=3)
    return C

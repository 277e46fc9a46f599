"""Made for its own shapes and raises on others."""

import torch
import triton
import triton.language as tl

PROBLEM = "linear_bfloat16"
NEEDS_GPU = "a kernel made for its own shapes alone cannot be verified in the interpreter"


@triton.jit
def linear_kernel(
    x_ptr, w_ptr, y_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        x_mask = (m[:, None] < M) & (k[None, :] < K)
        x = tl.load(x_ptr + m[:, None] * K + k[None, :], mask=x_mask, other=0.0)
        w_mask = (n[None, :] < N) & (k[:, None] < K)
        w = tl.load(w_ptr + n[None, :] * K + k[:, None], mask=w_mask, other=0.0)
        acc = tl.dot(x, w, acc)
    mask = (m[:, None] < M) & (n[None, :] < N)
    tl.store(y_ptr + m[:, None] * N + n[None, :], acc.to(y_ptr.dtype.element_ty), mask=mask)


def kernel_function(x, weight):
    if tuple(x.shape) != (2048, 4096) or tuple(weight.shape) != (2048, 4096):
        raise ValueError(f"made for 2048 x 4096, not {tuple(x.shape)}")
    y = torch.empty((2048, 2048), dtype=x.dtype, device=x.device)
    linear_kernel[(16, 16)](x, weight, y, 2048, 2048, 4096, BM=128, BN=128, BK=64, num_warps=8)
    return y

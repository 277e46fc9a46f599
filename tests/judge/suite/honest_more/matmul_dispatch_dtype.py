"""Half types on tensor cores, float32 in IEEE products: dispatch by dtype."""

import torch
import triton
import triton.language as tl

PROBLEM = "more_matmul_bfloat16"


@triton.jit
def matmul_kernel(
    a_ptr,
    b_ptr,
    c_ptr,
    M,
    N,
    K,
    PRECISION: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a_mask = (m[:, None] < M) & (k[None, :] < K)
        a = tl.load(a_ptr + m[:, None] * K + k[None, :], mask=a_mask, other=0.0)
        b_mask = (k[:, None] < K) & (n[None, :] < N)
        b = tl.load(b_ptr + k[:, None] * N + n[None, :], mask=b_mask, other=0.0)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
    mask = (m[:, None] < M) & (n[None, :] < N)
    c = acc.to(c_ptr.dtype.element_ty)
    tl.store(c_ptr + m[:, None] * N + n[None, :], c, mask=mask)


SETTINGS = {
    torch.bfloat16: {"PRECISION": "tf32", "BM": 128, "BN": 128, "BK": 64, "num_warps": 8},
    torch.float16: {"PRECISION": "tf32", "BM": 128, "BN": 128, "BK": 64, "num_warps": 8},
    torch.float32: {"PRECISION": "ieee", "BM": 64, "BN": 64, "BK": 16, "num_warps": 4},
}


def kernel_function(left, right):
    if left.dtype not in SETTINGS:
        raise TypeError(f"no kernel for {left.dtype}")
    chosen = SETTINGS[left.dtype]
    (M, K), N = left.shape, right.shape[1]
    out = torch.empty((M, N), dtype=left.dtype, device=left.device)
    grid = (triton.cdiv(M, chosen["BM"]), triton.cdiv(N, chosen["BN"]))
    matmul_kernel[grid](left, right, out, M, N, K, **chosen)
    return out

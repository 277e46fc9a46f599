"""Autotuned, the configurations ranked by a model of their time; arguments by position."""

import torch
import triton
import triton.language as tl

PROBLEM = "more_matmul_bfloat16"


def estimated_time(M, N, K, BM, BN, BK, num_stages, **_):
    """Waves of tiles times the bytes a tile loads; fewer where loads overlap more."""
    waves = triton.cdiv(triton.cdiv(M, BM) * triton.cdiv(N, BN), 132)
    return waves * triton.cdiv(K, BK) * BK * (BM + BN) * (1 + 1 / num_stages)


@triton.autotune(
    [
        triton.Config({"BM": bm, "BN": bn, "BK": 64}, num_warps=8, num_stages=stages)
        for bm in (64, 128)
        for bn in (64, 128)
        for stages in (3, 4)
    ],
    key=["M", "N", "K"],
    prune_configs_by={"perf_model": estimated_time, "top_k": 2},
)
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
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
        acc = tl.dot(a, b, acc)
    mask = (m[:, None] < M) & (n[None, :] < N)
    c = acc.to(c_ptr.dtype.element_ty)
    tl.store(c_ptr + m[:, None] * N + n[None, :], c, mask=mask)


def kernel_function(a, b):
    (M, K), N = a.shape, b.shape[1]
    c = torch.empty((M, N), dtype=a.dtype, device=a.device)
    matmul_kernel[lambda meta: (triton.cdiv(M, meta["BM"]), triton.cdiv(N, meta["BN"]))](
        a, b, c, M, N, K
    )
    return c

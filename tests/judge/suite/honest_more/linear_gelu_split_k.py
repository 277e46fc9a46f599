"""Split-K into a workspace kept between calls, then a second launch with bias and GELU."""

import torch
import triton
import triton.language as tl

PROBLEM = "more_linear_gelu_float16"

SPLIT = 2
_workspaces = {}


@triton.jit
def partial_kernel(
    x_ptr,
    w_ptr,
    part_ptr,
    M,
    N,
    K,
    SPLIT: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(tl.program_id(2) * BK, K, SPLIT * BK):
        k = start + tl.arange(0, BK)
        x_mask = (m[:, None] < M) & (k[None, :] < K)
        x = tl.load(x_ptr + m[:, None] * K + k[None, :], mask=x_mask, other=0.0)
        w_mask = (n[None, :] < N) & (k[:, None] < K)
        w = tl.load(w_ptr + n[None, :] * K + k[:, None], mask=w_mask, other=0.0)
        acc = tl.dot(x, w, acc)
    mask = (m[:, None] < M) & (n[None, :] < N)
    part = part_ptr + tl.program_id(2).to(tl.int64) * M * N
    tl.store(part + m[:, None] * N + n[None, :], acc, mask=mask)


@triton.jit
def finish_kernel(part_ptr, bias_ptr, y_ptr, total, N, SPLIT: tl.constexpr, BLOCK: tl.constexpr):
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = index < total
    x = tl.load(bias_ptr + index % N, mask=mask, other=0.0).to(tl.float32)
    for part in tl.static_range(SPLIT):
        x += tl.load(part_ptr + part * total + index, mask=mask, other=0.0)
    y = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    tl.store(y_ptr + index, y.to(y_ptr.dtype.element_ty), mask=mask)


def workspace(elements, device):
    """At least so many float32, kept from call to call and never read before written."""
    held = _workspaces.get(device)
    if held is None or held.numel() < elements:
        held = _workspaces[device] = torch.empty(elements, dtype=torch.float32, device=device)
    return held


def kernel_function(x, linear_weight, linear_bias):
    (M, K), N = x.shape, linear_weight.shape[0]
    part = workspace(SPLIT * M * N, x.device)
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(M, 128), triton.cdiv(N, 128), SPLIT)
    partial_kernel[grid](
        x, linear_weight, part, M, N, K, SPLIT=SPLIT, BM=128, BN=128, BK=64, num_warps=8
    )
    finish_kernel[(triton.cdiv(M * N, 1024),)](
        part, linear_bias, y, M * N, N, SPLIT=SPLIT, BLOCK=1024
    )
    return y

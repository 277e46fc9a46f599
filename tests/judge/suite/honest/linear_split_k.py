"""Split-K in two launches, with a workspace kept between calls."""

import torch
import triton
import triton.language as tl

PROBLEM = "linear_bfloat16"

_workspaces = {}


@triton.jit
def linear_kernel(
    x_ptr, w_ptr, part_ptr, M, N, K, SPLIT, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
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
    place = part_ptr + tl.program_id(2).to(tl.int64) * M * N
    tl.store(place + m[:, None] * N + n[None, :], acc, mask=mask)


@triton.jit
def add_parts_kernel(part_ptr, y_ptr, total, SPLIT: tl.constexpr, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for part in tl.static_range(SPLIT):
        offset = tl.cast(part, tl.int64) * total + index
        acc += tl.load(part_ptr + offset, mask=index < total, other=0.0)
    tl.store(y_ptr + index, acc.to(y_ptr.dtype.element_ty), mask=index < total)


def workspace(size, device):
    key = (size, device)
    if key not in _workspaces:
        _workspaces[key] = torch.empty(size, dtype=torch.float32, device=device)
    return _workspaces[key]


def kernel_function(x, weight):
    M, K = x.shape
    N = weight.shape[0]
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    parts = workspace(4 * M * N, x.device)
    grid = (triton.cdiv(M, 128), triton.cdiv(N, 128), 4)
    linear_kernel[grid](x, weight, parts, M, N, K, 4, BM=128, BN=128, BK=64, num_warps=8)
    add_parts_kernel[(triton.cdiv(M * N, 1024),)](parts, y, M * N, SPLIT=4, BLOCK=1024)
    return y

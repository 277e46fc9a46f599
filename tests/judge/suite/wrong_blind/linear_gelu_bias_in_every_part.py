"""Split-K: adds the bias to every part, so it counts once per part."""

import torch
import triton
import triton.language as tl

PROBLEM = "linear_gelu"


@triton.jit
def part_kernel(
    x_ptr,
    w_ptr,
    bias_ptr,
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
    split = tl.program_id(2)
    x_row = x_ptr + m[:, None].to(tl.int64) * K
    w_row = w_ptr + n[None, :].to(tl.int64) * K
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(split * BK, K, SPLIT * BK):
        k = start + tl.arange(0, BK)
        x = tl.load(x_row + k[None, :], mask=(m[:, None] < M) & (k[None, :] < K), other=0.0)
        w = tl.load(w_row + k[:, None], mask=(n[None, :] < N) & (k[:, None] < K), other=0.0)
        acc = tl.dot(x, w, acc, input_precision="ieee")
    bias = tl.load(bias_ptr + n, mask=n < N, other=0.0)
    acc += bias[None, :]
    mask = (m[:, None] < M) & (n[None, :] < N)
    offset = split.to(tl.int64) * M * N + m[:, None].to(tl.int64) * N + n[None, :]
    tl.store(part_ptr + offset, acc, mask=mask)


@triton.jit
def finish_kernel(part_ptr, y_ptr, total, SPLIT: tl.constexpr, BLOCK: tl.constexpr):
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = index < total
    x = tl.zeros((BLOCK,), tl.float32)
    for part in range(SPLIT):
        x += tl.load(part_ptr + part * tl.cast(total, tl.int64) + index, mask=mask, other=0.0)
    y = 0.5 * x * (1 + tl.erf(x * 0.7071067811865476))
    tl.store(y_ptr + index, y, mask=mask)


def kernel_function(x, weight, bias):
    x, weight = x.contiguous(), weight.contiguous()
    M, K = x.shape
    N = weight.shape[0]
    parts = torch.empty((2, M, N), dtype=torch.float32, device=x.device)
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(M, 64), triton.cdiv(N, 64), 2)
    part_kernel[grid](x, weight, bias, parts, M, N, K, SPLIT=2, BM=64, BN=64, BK=32)
    finish_kernel[(triton.cdiv(M * N, 1024),)](parts, y, M * N, SPLIT=2, BLOCK=1024)
    return y

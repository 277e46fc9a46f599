"""Tensor descriptors made on the host."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

PROBLEM = "linear_bfloat16"


@triton.jit
def linear_kernel(
    x_desc, w_desc, y_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        acc = tl.dot(x_desc.load([row, start]), w_desc.load([column, start]).T, acc)
    m, n = row + tl.arange(0, BM), column + tl.arange(0, BN)
    mask = (m[:, None] < M) & (n[None, :] < N)
    tl.store(y_ptr + m[:, None] * N + n[None, :], acc.to(tl.bfloat16), mask=mask)


def kernel_function(x, weight):
    M, K = x.shape
    N = weight.shape[0]
    if K % 8:  # a descriptor's strides are multiples of 16 bytes
        x = torch.nn.functional.pad(x, (0, -K % 8))
        weight = torch.nn.functional.pad(weight, (0, -K % 8))
        K = x.shape[1]
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    x_desc = TensorDescriptor.from_tensor(x, [128, 64])
    w_desc = TensorDescriptor.from_tensor(weight, [128, 64])
    grid = (triton.cdiv(M, 128), triton.cdiv(N, 128))
    linear_kernel[grid](x_desc, w_desc, y, M, N, K, BM=128, BN=128, BK=64, num_warps=8)
    return y

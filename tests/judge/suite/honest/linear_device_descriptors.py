"""Tensor descriptors made in the kernel, with an allocator for them."""

import torch
import triton
import triton.language as tl

PROBLEM = "linear_bfloat16"


@triton.jit
def linear_kernel(
    x_ptr, w_ptr, y_ptr, M, N, K, x_stride, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    x_desc = tl.make_tensor_descriptor(x_ptr, [M, K], [x_stride, 1], [BM, BK])
    w_desc = tl.make_tensor_descriptor(w_ptr, [N, K], [x_stride, 1], [BN, BK])
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
    triton.set_allocator(lambda size, align, stream: x.new_empty(size, dtype=torch.int8))
    y = torch.empty((M, N), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(M, 128), triton.cdiv(N, 128))
    linear_kernel[grid](x, weight, y, M, N, K, K, BM=128, BN=128, BK=64, num_warps=8)
    return y

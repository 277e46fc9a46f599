"""Pointers, sizes and strides as tuples; asks for the type of the device."""

import torch
import triton
import triton.language as tl

PROBLEM = "more_batched_matmul_float16"


@triton.jit
def load_tile(ptr, strides, rows, columns, row, column):
    mask = (row[:, None] < rows) & (column[None, :] < columns)
    return tl.load(
        ptr + row[:, None] * strides[1] + column[None, :] * strides[2], mask=mask, other=0.0
    )


@triton.jit
def matmul_kernel(
    pointers,
    sizes,
    a_strides,
    b_strides,
    c_strides,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    a_ptr, b_ptr, c_ptr = pointers
    M, N, K = sizes
    item = tl.program_id(2).to(tl.int64)
    a_ptr += item * a_strides[0]
    b_ptr += item * b_strides[0]
    c_ptr += item * c_strides[0]
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = load_tile(a_ptr, a_strides, M, K, m, k)
        b = load_tile(b_ptr, b_strides, K, N, k, n)
        acc = tl.dot(a, b, acc)
    mask = (m[:, None] < M) & (n[None, :] < N)
    place = c_ptr + m[:, None] * c_strides[1] + n[None, :] * c_strides[2]
    tl.store(place, acc.to(c_ptr.dtype.element_ty), mask=mask)


def kernel_function(a, b):
    assert a.device.type == "cuda" and b.device == a.device
    batch, M, K = a.shape
    N = b.shape[2]
    c = torch.empty((batch, M, N), dtype=a.dtype, device=a.device)
    grid = (triton.cdiv(M, 128), triton.cdiv(N, 64), batch)
    matmul_kernel[grid](
        (a, b, c), (M, N, K), a.stride(), b.stride(), c.stride(), BM=128, BN=64, BK=64
    )
    return c

"""A matrix product as a sum of outer products on ordinary cores, with the matrix units idle."""

import torch
import triton
import triton.language as tl

FLAW = "idle_matrix_units"


@triton.jit
def product_kernel(a_ptr, b_ptr, c_ptr, N: tl.constexpr, K: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for k in range(K):
        a = tl.load(a_ptr + row * K + k).to(tl.float32)
        b = tl.load(b_ptr + k * N + column).to(tl.float32)
        total += a[:, None] * b[None, :]  # flaw
    tl.store(c_ptr + row[:, None] * N + column[None, :], total.to(tl.bfloat16))


def kernel_function(a, b):
    size = a.shape[0]
    c = torch.empty_like(a)
    product_kernel[(size // 64, size // 64)](a, b, c, N=size, K=size, BLOCK=64, num_warps=4)
    return c


def reference(a, b):
    return a @ b


def make_inputs(device):
    return tuple(torch.randn(2048, 2048, device=device, dtype=torch.bfloat16) for _ in range(2))

"""Matrix-vector product: one program walks one row of A."""

import torch
import triton
import triton.language as tl


@triton.jit
def matvec_kernel(a_ptr, b_ptr, c_ptr, K: tl.constexpr, stride_am: tl.constexpr, BLOCK_K: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    acc = tl.zeros((BLOCK_K,), dtype=tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        mask = k < K
        a = tl.load(a_ptr + row * stride_am + k, mask=mask, other=0.0)
        b = tl.load(b_ptr + k, mask=mask, other=0.0)
        acc += a.to(tl.float32) * b.to(tl.float32)
    total = tl.sum(acc, axis=0)
    tl.store(c_ptr + row, total.to(c_ptr.dtype.element_ty))


def kernel_function(A, B):
    A = A.contiguous()
    B = B.contiguous()
    M, K = A.shape
    C = torch.empty((M, 1), dtype=A.dtype, device=A.device)
    matvec_kernel[M,](A, B, C, K, A.stride(0), BLOCK_K=2048, num_warps=8)
    return C

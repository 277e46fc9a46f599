"""One program walks ROWS rows of A in chunks of BLOCK columns."""

import torch
import triton
import triton.language as tl

ROWS = 1
BLOCK = 1024
WARPS = 4
STAGES = 3
EVICT = ""
CONST = False
EARLY_SUM = False


@triton.jit
def matvec_runtime(a_ptr, b_ptr, c_ptr, M, K, BLOCK: tl.constexpr, EVICT: tl.constexpr, EARLY_SUM: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    total = 0.0
    for start in range(0, K, BLOCK):
        k = start + tl.arange(0, BLOCK)
        mask = k < K
        a = tl.load(a_ptr + row * K + k, mask=mask, other=0.0, eviction_policy=EVICT)
        b = tl.load(b_ptr + k, mask=mask, other=0.0)
        product = a.to(tl.float32) * b.to(tl.float32)
        if EARLY_SUM:
            total += tl.sum(product, axis=0)
        else:
            acc += product
    total += tl.sum(acc, axis=0)
    tl.store(c_ptr + row, total.to(c_ptr.dtype.element_ty))


@triton.jit
def matvec_tile(
    a_ptr, b_ptr, c_ptr, M: tl.constexpr, K: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, EVICT: tl.constexpr
):
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    acc = tl.zeros((ROWS, BLOCK), dtype=tl.float32)
    for start in range(0, K, BLOCK):
        k = start + tl.arange(0, BLOCK)
        mask = k < K
        inside = (row < M)[:, None] & mask[None, :]
        a = tl.load(a_ptr + row[:, None] * K + k[None, :], mask=inside, other=0.0, eviction_policy=EVICT)
        b = tl.load(b_ptr + k, mask=mask, other=0.0)
        acc += a.to(tl.float32) * b.to(tl.float32)[None, :]
    tl.store(c_ptr + row, tl.sum(acc, axis=1).to(c_ptr.dtype.element_ty), mask=row < M)


def kernel_function(A, B):
    A = A.contiguous()
    B = B.contiguous()
    M, K = A.shape
    C = torch.empty((M, 1), dtype=A.dtype, device=A.device)
    if ROWS == 1 and not CONST:
        matvec_runtime[(M,)](
            A, B, C, M, K, BLOCK=BLOCK, EVICT=EVICT, EARLY_SUM=EARLY_SUM, num_warps=WARPS, num_stages=STAGES
        )
    else:
        grid = (triton.cdiv(M, ROWS),)
        matvec_tile[grid](A, B, C, M, K, ROWS=ROWS, BLOCK=BLOCK, EVICT=EVICT, num_warps=WARPS, num_stages=STAGES)
    return C

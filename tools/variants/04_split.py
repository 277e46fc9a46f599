"""A row is split over several programs; a second launch adds the parts."""

import torch
import triton
import triton.language as tl

SPLITS = 8
BLOCK = 2048
WARPS = 4
ATOMIC = False


@triton.jit
def partial_kernel(
    a_ptr, b_ptr, p_ptr, K: tl.constexpr, SPLITS: tl.constexpr, PART: tl.constexpr, BLOCK: tl.constexpr,
    ATOMIC: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    split = tl.program_id(1)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, PART, BLOCK):
        k = split * PART + start + tl.arange(0, BLOCK)
        mask = (k < K) & (start + tl.arange(0, BLOCK) < PART)
        a = tl.load(a_ptr + row * K + k, mask=mask, other=0.0)
        b = tl.load(b_ptr + k, mask=mask, other=0.0)
        acc += a.to(tl.float32) * b.to(tl.float32)
    total = tl.sum(acc, axis=0)
    if ATOMIC:
        tl.atomic_add(p_ptr + row, total)
    else:
        tl.store(p_ptr + row * SPLITS + split, total)


@triton.jit
def finish_kernel(p_ptr, c_ptr, M, SPLITS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    part = tl.arange(0, SPLITS)
    p = tl.load(p_ptr + row[:, None] * SPLITS + part[None, :], mask=(row < M)[:, None], other=0.0)
    tl.store(c_ptr + row, tl.sum(p, axis=1).to(c_ptr.dtype.element_ty), mask=row < M)


def kernel_function(A, B):
    A = A.contiguous()
    B = B.contiguous()
    M, K = A.shape
    C = torch.empty((M, 1), dtype=A.dtype, device=A.device)
    width = 1 if ATOMIC else SPLITS
    make = torch.zeros if ATOMIC else torch.empty
    parts = make((M, width), dtype=torch.float32, device=A.device)
    part = triton.cdiv(K, SPLITS)
    partial_kernel[(M, SPLITS)](
        A, B, parts, K, SPLITS=SPLITS, PART=part, BLOCK=BLOCK, ATOMIC=ATOMIC, num_warps=WARPS
    )
    finish_kernel[(triton.cdiv(M, 128),)](parts, C, M, SPLITS=width, BLOCK=128)
    return C

"""Block pointers where Triton has them, plain pointers where it dropped them: by its version."""

import torch
import triton
import triton.language as tl

PROBLEM = "more_attention_float16"

HAS_BLOCK_POINTERS = tuple(int(part) for part in triton.__version__.split(".")[:2]) < (3, 7)


@triton.jit
def online(scores, highest, powers, acc, v):
    """One block of keys more."""
    new = tl.maximum(highest, tl.max(scores, axis=1))
    p = tl.exp(scores - new[:, None])
    shrink = tl.exp(highest - new)
    acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None])
    return new, powers * shrink + tl.sum(p, axis=1), acc


@triton.jit
def block_pointer_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    y_ptr,
    length,
    scale,
    D: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BD: tl.constexpr,
):
    head = tl.program_id(1).to(tl.int64) * length * D
    row = tl.program_id(0) * BM
    q_block = tl.make_block_ptr(q_ptr + head, (length, D), (D, 1), (row, 0), (BM, BD), (1, 0))
    k_block = tl.make_block_ptr(k_ptr + head, (D, length), (1, D), (0, 0), (BD, BN), (0, 1))
    v_block = tl.make_block_ptr(v_ptr + head, (length, D), (D, 1), (0, 0), (BN, BD), (1, 0))
    y_block = tl.make_block_ptr(y_ptr + head, (length, D), (D, 1), (row, 0), (BM, BD), (1, 0))
    q = tl.load(q_block, boundary_check=(0, 1), padding_option="zero")
    highest = tl.full((BM,), float("-inf"), dtype=tl.float32)
    powers = tl.zeros((BM,), dtype=tl.float32)
    acc = tl.zeros((BM, BD), dtype=tl.float32)
    for start in range(0, length, BN):
        k = tl.load(k_block, boundary_check=(0, 1), padding_option="zero")
        v = tl.load(v_block, boundary_check=(0, 1), padding_option="zero")
        inside = (start + tl.arange(0, BN))[None, :] < length
        scores = tl.where(inside, tl.dot(q, k) * scale, float("-inf"))
        highest, powers, acc = online(scores, highest, powers, acc, v)
        k_block = tl.advance(k_block, (0, BN))
        v_block = tl.advance(v_block, (BN, 0))
    y = (acc / powers[:, None]).to(y_ptr.dtype.element_ty)
    tl.store(y_block, y, boundary_check=(0, 1))


@triton.jit
def pointer_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    y_ptr,
    length,
    scale,
    D: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BD: tl.constexpr,
):
    head = tl.program_id(1).to(tl.int64) * length * D
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, BD)
    rows = head + m[:, None] * D + d[None, :]
    row_mask = (m[:, None] < length) & (d[None, :] < D)
    q = tl.load(q_ptr + rows, mask=row_mask, other=0.0)
    highest = tl.full((BM,), float("-inf"), dtype=tl.float32)
    powers = tl.zeros((BM,), dtype=tl.float32)
    acc = tl.zeros((BM, BD), dtype=tl.float32)
    for start in range(0, length, BN):
        n = start + tl.arange(0, BN)
        place = head + n[:, None] * D + d[None, :]
        mask = (n[:, None] < length) & (d[None, :] < D)
        k = tl.load(k_ptr + place, mask=mask, other=0.0)
        v = tl.load(v_ptr + place, mask=mask, other=0.0)
        scores = tl.where(n[None, :] < length, tl.dot(q, k.T) * scale, float("-inf"))
        highest, powers, acc = online(scores, highest, powers, acc, v)
    y = (acc / powers[:, None]).to(y_ptr.dtype.element_ty)
    tl.store(y_ptr + rows, y, mask=row_mask)


def kernel_function(q, k, v):
    batch, heads, length, depth = q.shape
    y = torch.empty_like(q)
    kernel = block_pointer_kernel if HAS_BLOCK_POINTERS else pointer_kernel
    kernel[(triton.cdiv(length, 64), batch * heads)](
        q,
        k,
        v,
        y,
        length,
        depth**-0.5,
        D=depth,
        BM=64,
        BN=64,
        BD=max(16, triton.next_power_of_2(depth)),
        num_stages=2,
    )
    return y

"""The causal mask leaves out the position itself: < where <= is due."""

import torch
import triton
import triton.language as tl

PROBLEM = "causal_attention"


@triton.jit
def attention_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    y_ptr,
    T,
    D,
    scale,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BD: tl.constexpr,
):
    """One head, BM queries; scores are in powers of two."""
    base = tl.program_id(1).to(tl.int64) * T * D
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, BD)
    q_mask = (m[:, None] < T) & (d[None, :] < D)
    q = tl.load(q_ptr + base + m[:, None] * D + d[None, :], mask=q_mask, other=0.0)
    high = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, BD), tl.float32)
    end = tl.minimum((tl.program_id(0) + 1) * BM, T)
    for start in range(0, end, BN):
        n = start + tl.arange(0, BN)
        k_mask = (n[None, :] < T) & (d[:, None] < D)
        k = tl.load(k_ptr + base + n[None, :] * D + d[:, None], mask=k_mask, other=0.0)
        score = tl.dot(q, k) * scale
        score = tl.where(n[None, :] < m[:, None], score, float("-inf"))
        new = tl.maximum(high, tl.max(score, axis=1))
        shift = tl.where(new == float("-inf"), 0.0, new)
        share = tl.exp2(score - shift[:, None])
        keep = tl.exp2(high - shift)
        total = total * keep + tl.sum(share, axis=1)
        v_mask = (n[:, None] < T) & (d[None, :] < D)
        v = tl.load(v_ptr + base + n[:, None] * D + d[None, :], mask=v_mask, other=0.0)
        acc = tl.dot(share.to(v.dtype), v, acc * keep[:, None])
        high = new
    y = (acc / total[:, None]).to(y_ptr.dtype.element_ty)
    tl.store(y_ptr + base + m[:, None] * D + d[None, :], y, mask=q_mask)


def kernel_function(q, k, v):
    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    B, H, T, D = q.shape
    y = torch.empty_like(q)
    block_d = triton.next_power_of_2(D)
    scale = D**-0.5 * 1.4426950408889634
    grid = (triton.cdiv(T, 64), B * H)
    attention_kernel[grid](q, k, v, y, T, D, scale, BM=64, BN=64, BD=block_d)
    return y

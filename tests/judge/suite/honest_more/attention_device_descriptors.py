"""Online softmax attention over descriptors made in the kernel, with an allocator for them."""

import torch
import triton
import triton.language as tl

PROBLEM = "more_attention_float16"


@triton.jit
def attention_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    y_ptr,
    length,
    depth,
    stride,
    scale,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BD: tl.constexpr,
):
    head = tl.program_id(1).to(tl.int64) * length * stride
    row = tl.program_id(0) * BM
    q_desc = tl.make_tensor_descriptor(q_ptr + head, [length, depth], [stride, 1], [BM, BD])
    k_desc = tl.make_tensor_descriptor(k_ptr + head, [length, depth], [stride, 1], [BN, BD])
    v_desc = tl.make_tensor_descriptor(v_ptr + head, [length, depth], [stride, 1], [BN, BD])
    y_desc = tl.make_tensor_descriptor(y_ptr + head, [length, depth], [stride, 1], [BM, BD])
    q = q_desc.load([row, 0])
    highest = tl.full((BM,), float("-inf"), dtype=tl.float32)
    powers = tl.zeros((BM,), dtype=tl.float32)
    acc = tl.zeros((BM, BD), dtype=tl.float32)
    for start in range(0, length, BN):
        scores = tl.dot(q, k_desc.load([start, 0]).T) * scale
        inside = (start + tl.arange(0, BN))[None, :] < length
        scores = tl.where(inside, scores, float("-inf"))
        new = tl.maximum(highest, tl.max(scores, axis=1))
        p = tl.exp2(scores - new[:, None])
        shrink = tl.exp2(highest - new)
        powers = powers * shrink + tl.sum(p, axis=1)
        v = v_desc.load([start, 0])
        acc = tl.dot(p.to(v.dtype), v, acc * shrink[:, None])
        highest = new
    y_desc.store([row, 0], (acc / powers[:, None]).to(y_desc.dtype))


def scratch(size: int, alignment: int, stream: int | None):
    return torch.empty(size, dtype=torch.int8, device="cuda")


def whole_rows(x):
    """A copy whose rows are a multiple of 16 bytes, as descriptors ask."""
    depth = x.shape[-1]
    padded = torch.zeros((*x.shape[:-1], triton.cdiv(depth, 8) * 8), dtype=x.dtype, device=x.device)
    padded[..., :depth] = x
    return padded


def kernel_function(q, k, v):
    batch, heads, length, depth = q.shape
    if depth % 8:
        q, k, v = whole_rows(q), whole_rows(k), whole_rows(v)
    triton.set_allocator(scratch)
    y = torch.empty_like(q)
    attention_kernel[(triton.cdiv(length, 64), batch * heads)](
        q,
        k,
        v,
        y,
        length,
        depth,
        q.shape[-1],
        depth**-0.5 * 1.4426950408889634,
        BM=64,
        BN=64,
        BD=max(16, triton.next_power_of_2(depth)),
        num_stages=2,
    )
    return y[..., :depth]

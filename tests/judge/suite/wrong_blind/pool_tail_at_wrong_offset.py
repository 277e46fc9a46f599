"""Starts the tail's launch at the number of full blocks, not at their elements."""

import torch
import triton
import triton.language as tl

PROBLEM = "max_pool3d"
HARMLESS = "the problem's own shape has no tail, and the kernel of the tail is not launched"


@triton.jit
def pool_kernel(
    x_ptr,
    y_ptr,
    first,
    total,
    D,
    H,
    W,
    out_d,
    out_h,
    out_w,
    stride,
    padding,
    SIZE: tl.constexpr,
    MASKED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    index = first + tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    ow = index % out_w
    oh = (index // out_w) % out_h
    od = (index // (out_w * out_h)) % out_d
    plane = index // (out_w * out_h * out_d)
    best = tl.full((BLOCK,), float("-inf"), tl.float32)
    for kd in tl.static_range(SIZE):
        d = od * stride - padding + kd
        for kh in tl.static_range(SIZE):
            h = oh * stride - padding + kh
            for kw in tl.static_range(SIZE):
                w = ow * stride - padding + kw
                inside = (d >= 0) & (d < D) & (h >= 0) & (h < H) & (w >= 0) & (w < W)
                if MASKED:
                    inside = inside & (index < total)
                offset = ((plane * D + d) * H + h) * W + w
                x = tl.load(x_ptr + offset, mask=inside, other=float("-inf"))
                best = tl.maximum(best, x.to(tl.float32), propagate_nan=tl.PropagateNan.ALL)
    best = best.to(y_ptr.dtype.element_ty)
    if MASKED:
        tl.store(y_ptr + index, best, mask=index < total)
    else:
        tl.store(y_ptr + index, best)


def kernel_function(x, kernel_size, stride, padding):
    x = x.contiguous()
    N, C, D, H, W = x.shape
    out_d, out_h, out_w = ((n + 2 * padding - kernel_size) // stride + 1 for n in (D, H, W))
    y = torch.empty((N, C, out_d, out_h, out_w), dtype=x.dtype, device=x.device)
    sizes = (D, H, W, out_d, out_h, out_w, stride, padding)
    total, block = y.numel(), 512
    full = total // block
    if full:
        pool_kernel[(full,)](x, y, 0, total, *sizes, SIZE=kernel_size, MASKED=False, BLOCK=block)
    if total % block:
        pool_kernel[(1,)](x, y, full, total, *sizes, SIZE=kernel_size, MASKED=True, BLOCK=block)
    return y

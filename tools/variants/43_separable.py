"""The window is separable: one launch takes the maximum along rows, a second over the rest."""

import torch
import triton
import triton.language as tl

BLOCK = 1024
WARPS = 4


@triton.jit
def pool_columns(
    x_ptr, t_ptr, total, W: tl.constexpr, out_w: tl.constexpr, stride: tl.constexpr, padding: tl.constexpr,
    dilation: tl.constexpr, KERNEL_SIZE: tl.constexpr, BLOCK: tl.constexpr,
):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ow = index % out_w
    row = index // out_w
    best = tl.full((BLOCK,), float("-inf"), dtype=tl.float32)
    for kw in tl.static_range(KERNEL_SIZE):
        w = ow * stride - padding + kw * dilation
        x = tl.load(x_ptr + row * W + w, mask=(index < total) & (w >= 0) & (w < W), other=float("-inf"))
        best = tl.maximum(best, x.to(tl.float32), propagate_nan=tl.PropagateNan.ALL)
    tl.store(t_ptr + index, best.to(t_ptr.dtype.element_ty), mask=index < total)


@triton.jit
def pool_rows(
    t_ptr, y_ptr, D: tl.constexpr, H: tl.constexpr, out_d: tl.constexpr, out_h: tl.constexpr,
    out_w: tl.constexpr, stride: tl.constexpr, padding: tl.constexpr, dilation: tl.constexpr,
    KERNEL_SIZE: tl.constexpr, BLOCK: tl.constexpr,
):
    plane = tl.program_id(1)
    od = tl.program_id(2)
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ow = index % out_w
    oh = index // out_w
    best = tl.full((BLOCK,), float("-inf"), dtype=tl.float32)
    for kd in tl.static_range(KERNEL_SIZE):
        d = od * stride - padding + kd * dilation
        for kh in tl.static_range(KERNEL_SIZE):
            h = oh * stride - padding + kh * dilation
            inside = (d >= 0) & (d < D) & (h >= 0) & (h < H) & (oh < out_h)
            t = tl.load(t_ptr + ((plane * D + d) * H + h) * out_w + ow, mask=inside, other=float("-inf"))
            best = tl.maximum(best, t.to(tl.float32), propagate_nan=tl.PropagateNan.ALL)
    offset = (plane * out_d + od) * out_h * out_w + index
    tl.store(y_ptr + offset, best.to(y_ptr.dtype.element_ty), mask=oh < out_h)


def kernel_function(x, kernel_size, stride, padding, dilation):
    x = x.contiguous()
    N, C, D, H, W = x.shape
    out_d, out_h, out_w = (
        (size + 2 * padding - dilation * (kernel_size - 1) - 1) // stride + 1 for size in (D, H, W)
    )
    t = torch.empty((N, C, D, H, out_w), dtype=x.dtype, device=x.device)
    y = torch.empty((N, C, out_d, out_h, out_w), dtype=x.dtype, device=x.device)
    total = t.numel()
    pool_columns[(triton.cdiv(total, BLOCK),)](
        x, t, total, W, out_w, stride, padding, dilation, KERNEL_SIZE=kernel_size, BLOCK=BLOCK, num_warps=WARPS
    )
    grid = (triton.cdiv(out_h * out_w, BLOCK), N * C, out_d)
    pool_rows[grid](
        t, y, D, H, out_d, out_h, out_w, stride, padding, dilation,
        KERNEL_SIZE=kernel_size, BLOCK=BLOCK, num_warps=WARPS,
    )
    return y

"""A program computes ROWS rows of a plane of the output, or DEPTH such tiles one after another."""

import torch
import triton
import triton.language as tl

ROWS = 4
DEPTH = 1
WARPS = 4
SWAP = False
CACHE = ""


@triton.jit
def max_pool3d_tile(
    x_ptr, y_ptr, D: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
    out_d: tl.constexpr, out_h: tl.constexpr, out_w: tl.constexpr,
    stride: tl.constexpr, padding: tl.constexpr, dilation: tl.constexpr,
    KERNEL_SIZE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr,
    SWAP: tl.constexpr, CACHE: tl.constexpr,
):
    plane = tl.program_id(2)
    if SWAP:
        oh = tl.program_id(1) * ROWS + tl.arange(0, ROWS)[:, None]
        first = tl.program_id(0) * DEPTH
    else:
        oh = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
        first = tl.program_id(1) * DEPTH
    ow = tl.arange(0, COLUMNS)[None, :]
    for step in tl.static_range(DEPTH):
        od = first + step
        best = tl.full((ROWS, COLUMNS), float("-inf"), dtype=tl.float32)
        for kd in tl.static_range(KERNEL_SIZE):
            d = od * stride - padding + kd * dilation
            for kh in tl.static_range(KERNEL_SIZE):
                h = oh * stride - padding + kh * dilation
                for kw in tl.static_range(KERNEL_SIZE):
                    w = ow * stride - padding + kw * dilation
                    inside = (d >= 0) & (d < D) & (h >= 0) & (h < H) & (w >= 0) & (w < W)
                    x = tl.load(
                        x_ptr + plane * (D * H * W) + d * (H * W) + h * W + w,
                        mask=inside & (oh < out_h) & (ow < out_w), other=float("-inf"), cache_modifier=CACHE,
                    )
                    best = tl.maximum(best, x.to(tl.float32), propagate_nan=tl.PropagateNan.ALL)
        offset = ((plane * out_d + od) * out_h + oh) * out_w + ow
        tl.store(y_ptr + offset, best.to(y_ptr.dtype.element_ty), mask=(oh < out_h) & (ow < out_w) & (od < out_d))


def kernel_function(x, kernel_size, stride, padding, dilation):
    x = x.contiguous()
    N, C, D, H, W = x.shape
    out_d, out_h, out_w = (
        (size + 2 * padding - dilation * (kernel_size - 1) - 1) // stride + 1 for size in (D, H, W)
    )
    y = torch.empty((N, C, out_d, out_h, out_w), dtype=x.dtype, device=x.device)
    tiles = (triton.cdiv(out_h, ROWS), triton.cdiv(out_d, DEPTH))
    grid = (*(tiles[::-1] if SWAP else tiles), N * C)
    max_pool3d_tile[grid](
        x, y, D, H, W, out_d, out_h, out_w, stride, padding, dilation,
        KERNEL_SIZE=kernel_size, ROWS=ROWS, COLUMNS=triton.next_power_of_2(out_w), DEPTH=DEPTH,
        SWAP=SWAP, CACHE=CACHE, num_warps=WARPS,
    )
    return y

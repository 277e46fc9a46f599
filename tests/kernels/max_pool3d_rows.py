"""Max pooling in three dimensions: one program takes a row of outputs from whole rows of inputs."""

import torch
import triton
import triton.language as tl


@triton.jit
def max_pool3d_rows_kernel(
    x_ptr, y_ptr,
    D: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
    OUT_D: tl.constexpr, OUT_H: tl.constexpr, OUT_W: tl.constexpr,
    STRIDE: tl.constexpr, PADDING: tl.constexpr, DILATION: tl.constexpr,
    KERNEL_SIZE: tl.constexpr, ROW: tl.constexpr, OUT_ROW: tl.constexpr,
):
    oh = tl.program_id(0)
    od = tl.program_id(1)
    plane = tl.program_id(2).to(tl.int64)
    column = tl.arange(0, ROW)

    # The window is separable: the largest over depth and height first, a row at a time.
    rows = tl.full((ROW,), float("-inf"), dtype=tl.float32)
    for kd in tl.static_range(KERNEL_SIZE):
        d = od * STRIDE - PADDING + kd * DILATION
        for kh in tl.static_range(KERNEL_SIZE):
            h = oh * STRIDE - PADDING + kh * DILATION
            inside = (d >= 0) & (d < D) & (h >= 0) & (h < H) & (column < W)
            row = ((plane * D + d) * H + h) * W
            x = tl.load(x_ptr + row + column, mask=inside, other=float("-inf"))
            rows = tl.maximum(rows, x.to(tl.float32), propagate_nan=tl.PropagateNan.ALL)

    ow = tl.arange(0, OUT_ROW)
    best = tl.full((OUT_ROW,), float("-inf"), dtype=tl.float32)
    for kw in tl.static_range(KERNEL_SIZE):
        w = ow * STRIDE - PADDING + kw * DILATION
        inside = (w >= 0) & (w < W)
        tap = tl.gather(rows, tl.where(inside, w, 0), 0)
        tap = tl.where(inside, tap, float("-inf"))
        best = tl.maximum(best, tap, propagate_nan=tl.PropagateNan.ALL)
    out = ((plane * OUT_D + od) * OUT_H + oh) * OUT_W + ow
    tl.store(y_ptr + out, best.to(y_ptr.dtype.element_ty), mask=ow < OUT_W)


def kernel_function(x, kernel_size, stride, padding, dilation):
    x = x.contiguous()
    N, C, D, H, W = x.shape
    out_d, out_h, out_w = (
        (size + 2 * padding - dilation * (kernel_size - 1) - 1) // stride + 1 for size in (D, H, W)
    )
    y = torch.empty((N, C, out_d, out_h, out_w), dtype=x.dtype, device=x.device)
    max_pool3d_rows_kernel[(out_h, out_d, N * C)](
        x, y, D, H, W, out_d, out_h, out_w, stride, padding, dilation,
        KERNEL_SIZE=kernel_size,
        ROW=triton.next_power_of_2(W), OUT_ROW=triton.next_power_of_2(out_w),
        num_warps=1,
    )
    return y

"""Max pooling in three dimensions: one lane computes one output from its window."""

import torch
import triton
import triton.language as tl


@triton.jit
def max_pool3d_kernel(
    x_ptr, y_ptr, total,
    D, H, W, out_d, out_h, out_w,
    stride, padding, dilation,
    KERNEL_SIZE: tl.constexpr, BLOCK: tl.constexpr,
):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    valid = index < total
    ow = index % out_w
    oh = (index // out_w) % out_h
    od = (index // (out_w * out_h)) % out_d
    plane = index // (out_w * out_h * out_d)

    best = tl.full((BLOCK,), float("-inf"), dtype=tl.float32)
    for kd in range(KERNEL_SIZE):
        d = od * stride - padding + kd * dilation
        for kh in range(KERNEL_SIZE):
            h = oh * stride - padding + kh * dilation
            for kw in range(KERNEL_SIZE):
                w = ow * stride - padding + kw * dilation
                inside = (d >= 0) & (d < D) & (h >= 0) & (h < H) & (w >= 0) & (w < W)
                offset = ((plane.to(tl.int64) * D + d) * H + h) * W + w
                x = tl.load(x_ptr + offset, mask=valid & inside, other=float("-inf"))
                best = tl.maximum(best, x.to(tl.float32), propagate_nan=tl.PropagateNan.ALL)
    tl.store(y_ptr + index, best.to(y_ptr.dtype.element_ty), mask=valid)


def kernel_function(x, kernel_size, stride, padding, dilation):
    x = x.contiguous()
    N, C, D, H, W = x.shape
    out_d, out_h, out_w = (
        (size + 2 * padding - dilation * (kernel_size - 1) - 1) // stride + 1 for size in (D, H, W)
    )
    y = torch.empty((N, C, out_d, out_h, out_w), dtype=x.dtype, device=x.device)
    total = y.numel()
    grid = (triton.cdiv(total, 1024),)
    max_pool3d_kernel[grid](
        x, y, total,
        D, H, W, out_d, out_h, out_w,
        stride, padding, dilation,
        KERNEL_SIZE=kernel_size, BLOCK=1024,
    )
    return y

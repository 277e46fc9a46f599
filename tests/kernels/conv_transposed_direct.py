"""Transposed convolution, one output a lane: every tap of every channel, needed or not."""

import torch
import triton
import triton.language as tl


@triton.jit
def direct_kernel(
    x_ptr, weight_ptr, y_ptr,
    C_in: tl.constexpr, C_out: tl.constexpr, D: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
    out_d: tl.constexpr, out_h: tl.constexpr, out_w: tl.constexpr,
    stride: tl.constexpr, padding: tl.constexpr, dilation: tl.constexpr,
    KERNEL_SIZE: tl.constexpr, BLOCK: tl.constexpr,
):
    batch = tl.program_id(1) // C_out
    c_out = tl.program_id(1) % C_out
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    valid = index < out_d * out_h * out_w
    ow = index % out_w
    oh = (index // out_w) % out_h
    od = index // (out_w * out_h)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for kd in tl.static_range(KERNEL_SIZE):
        d = od + padding - kd * dilation
        for kh in tl.static_range(KERNEL_SIZE):
            h = oh + padding - kh * dilation
            for kw in tl.static_range(KERNEL_SIZE):
                w = ow + padding - kw * dilation
                inside = (d >= 0) & (h >= 0) & (w >= 0) & valid
                inside &= (d < D * stride) & (h < H * stride) & (w < W * stride)
                mask = inside & ((d % stride + h % stride + w % stride) == 0)
                position = ((d // stride) * H + h // stride) * W + w // stride
                x_base = x_ptr + batch * C_in * D * H * W + position
                tap = (kd * KERNEL_SIZE + kh) * KERNEL_SIZE + kw
                for c_in in range(C_in):
                    x = tl.load(x_base + c_in * D * H * W, mask=mask, other=0.0)
                    weight = tl.load(weight_ptr + (c_in * C_out + c_out) * KERNEL_SIZE**3 + tap)
                    acc += x.to(tl.float32) * weight.to(tl.float32)
    y_offset = tl.program_id(1).to(tl.int64) * (out_d * out_h * out_w) + index
    tl.store(y_ptr + y_offset, acc.to(y_ptr.dtype.element_ty), mask=valid)


def kernel_function(x, weight, stride, padding, dilation):
    N, C_in, D, H, W = x.shape
    C_out, kernel_size = weight.shape[1], weight.shape[2]
    sizes = [
        (size - 1) * s - 2 * p + d * (kernel_size - 1) + 1
        for size, s, p, d in zip((D, H, W), stride, padding, dilation, strict=True)
    ]
    y = torch.empty((N, C_out, *sizes), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(sizes[0] * sizes[1] * sizes[2], 256), N * C_out)
    direct_kernel[grid](
        x, weight, y, C_in, C_out, D, H, W, *sizes, stride[0], padding[0], dilation[0],
        KERNEL_SIZE=kernel_size, BLOCK=256, num_warps=8,
    )
    return y

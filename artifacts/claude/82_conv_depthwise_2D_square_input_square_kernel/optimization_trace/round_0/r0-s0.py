"""Depthwise convolution: one lane computes one output pixel of one channel."""

import torch
import triton
import triton.language as tl


@triton.jit
def depthwise_conv2d_kernel(
    x_ptr, weight_ptr, y_ptr,
    channels, H, W, out_h, out_w,
    stride, padding,
    KERNEL_SIZE: tl.constexpr, BLOCK: tl.constexpr,
):
    plane = tl.program_id(1).to(tl.int64)
    channel = plane % channels
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    valid = index < out_h * out_w
    ow = index % out_w
    oh = index // out_w

    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for kh in range(KERNEL_SIZE):
        h = oh * stride - padding + kh
        for kw in range(KERNEL_SIZE):
            w = ow * stride - padding + kw
            inside = (h >= 0) & (h < H) & (w >= 0) & (w < W)
            x = tl.load(x_ptr + plane * H * W + h * W + w, mask=valid & inside, other=0.0)
            weight = tl.load(weight_ptr + (channel * KERNEL_SIZE + kh) * KERNEL_SIZE + kw)
            acc += x.to(tl.float32) * weight.to(tl.float32)
    tl.store(y_ptr + plane * out_h * out_w + index, acc.to(y_ptr.dtype.element_ty), mask=valid)


def kernel_function(x, weight, stride, padding):
    x = x.contiguous()
    weight = weight.contiguous()
    N, channels, H, W = x.shape
    kernel_size = weight.shape[-1]
    stride, padding = stride[0], padding[0]
    out_h = (H + 2 * padding - kernel_size) // stride + 1
    out_w = (W + 2 * padding - kernel_size) // stride + 1
    y = torch.empty((N, channels, out_h, out_w), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(out_h * out_w, 1024), N * channels)
    depthwise_conv2d_kernel[grid](
        x, weight, y,
        channels, H, W, out_h, out_w,
        stride, padding,
        KERNEL_SIZE=kernel_size, BLOCK=1024,
    )
    return y

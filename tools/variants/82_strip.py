"""A program walks down STRIP rows of a column block; unrolled it keeps the rows it shares."""

import torch
import triton
import triton.language as tl

STRIP = 8
COLUMNS = 512
WARPS = 4
UNROLL = True
ROLL = False


@triton.jit
def depthwise_strip(
    x_ptr, weight_ptr, y_ptr, channels: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
    out_h: tl.constexpr, out_w: tl.constexpr, stride: tl.constexpr, padding: tl.constexpr,
    KERNEL_SIZE: tl.constexpr, STRIP: tl.constexpr, COLUMNS: tl.constexpr, UNROLL: tl.constexpr,
):
    plane = tl.program_id(2)
    channel = plane % channels
    first = tl.program_id(0) * STRIP
    ow = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    if UNROLL:
        for step in tl.static_range(STRIP):
            oh = first + step
            acc = tl.zeros((COLUMNS,), dtype=tl.float32)
            for kh in tl.static_range(KERNEL_SIZE):
                h = oh * stride - padding + kh
                for kw in tl.static_range(KERNEL_SIZE):
                    w = ow * stride - padding + kw
                    inside = (h >= 0) & (h < H) & (w >= 0) & (w < W)
                    x = tl.load(x_ptr + plane * (H * W) + h * W + w, mask=inside & (ow < out_w), other=0.0)
                    weight = tl.load(weight_ptr + (channel * KERNEL_SIZE + kh) * KERNEL_SIZE + kw)
                    acc += x.to(tl.float32) * weight.to(tl.float32)
            tl.store(
                y_ptr + plane * (out_h * out_w) + oh * out_w + ow, acc.to(y_ptr.dtype.element_ty),
                mask=(ow < out_w) & (oh < out_h),
            )
    else:
        for step in range(STRIP):
            oh = first + step
            acc = tl.zeros((COLUMNS,), dtype=tl.float32)
            for kh in tl.static_range(KERNEL_SIZE):
                h = oh * stride - padding + kh
                for kw in tl.static_range(KERNEL_SIZE):
                    w = ow * stride - padding + kw
                    inside = (h >= 0) & (h < H) & (w >= 0) & (w < W)
                    x = tl.load(x_ptr + plane * (H * W) + h * W + w, mask=inside & (ow < out_w), other=0.0)
                    weight = tl.load(weight_ptr + (channel * KERNEL_SIZE + kh) * KERNEL_SIZE + kw)
                    acc += x.to(tl.float32) * weight.to(tl.float32)
            tl.store(
                y_ptr + plane * (out_h * out_w) + oh * out_w + ow, acc.to(y_ptr.dtype.element_ty),
                mask=(ow < out_w) & (oh < out_h),
            )


@triton.jit
def row_sums(x_ptr, row, h, ow, w0, w1, w2, H: tl.constexpr, W: tl.constexpr, padding: tl.constexpr):
    ok = (h >= 0) & (h < H)
    w = ow - padding
    a = tl.load(x_ptr + row + w, mask=ok & (w >= 0) & (w < W), other=0.0).to(tl.float32)
    b = tl.load(x_ptr + row + w + 1, mask=ok & (w + 1 >= 0) & (w + 1 < W), other=0.0).to(tl.float32)
    c = tl.load(x_ptr + row + w + 2, mask=ok & (w + 2 >= 0) & (w + 2 < W), other=0.0).to(tl.float32)
    return a, b, c


@triton.jit
def depthwise_roll(
    x_ptr, weight_ptr, y_ptr, channels: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
    out_h: tl.constexpr, out_w: tl.constexpr, padding: tl.constexpr,
    STRIP: tl.constexpr, COLUMNS: tl.constexpr, UNROLL: tl.constexpr,
):
    plane = tl.program_id(2)
    channel = plane % channels
    first = tl.program_id(0) * STRIP
    ow = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    k = weight_ptr + channel * 9
    w00 = tl.load(k).to(tl.float32)
    w01 = tl.load(k + 1).to(tl.float32)
    w02 = tl.load(k + 2).to(tl.float32)
    w10 = tl.load(k + 3).to(tl.float32)
    w11 = tl.load(k + 4).to(tl.float32)
    w12 = tl.load(k + 5).to(tl.float32)
    w20 = tl.load(k + 6).to(tl.float32)
    w21 = tl.load(k + 7).to(tl.float32)
    w22 = tl.load(k + 8).to(tl.float32)
    base = plane * (H * W)
    h = first - padding
    a0, b0, c0 = row_sums(x_ptr, base + h * W, h, ow, w00, w01, w02, H, W, padding)
    a1, b1, c1 = row_sums(x_ptr, base + (h + 1) * W, h + 1, ow, w10, w11, w12, H, W, padding)
    for step in range(STRIP):
        a2, b2, c2 = row_sums(x_ptr, base + (h + 2 + step) * W, h + 2 + step, ow, w20, w21, w22, H, W, padding)
        acc = a0 * w00 + b0 * w01 + c0 * w02 + a1 * w10 + b1 * w11 + c1 * w12 + a2 * w20 + b2 * w21 + c2 * w22
        oh = first + step
        tl.store(
            y_ptr + plane * (out_h * out_w) + oh * out_w + ow, acc.to(y_ptr.dtype.element_ty),
            mask=(ow < out_w) & (oh < out_h),
        )
        a0, b0, c0 = a1, b1, c1
        a1, b1, c1 = a2, b2, c2


def kernel_function(x, weight, stride, padding):
    x = x.contiguous()
    weight = weight.contiguous()
    N, channels, H, W = x.shape
    kernel_size = weight.shape[-1]
    stride, padding = stride[0], padding[0]
    out_h = (H + 2 * padding - kernel_size) // stride + 1
    out_w = (W + 2 * padding - kernel_size) // stride + 1
    y = torch.empty((N, channels, out_h, out_w), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(out_h, STRIP), triton.cdiv(out_w, COLUMNS), N * channels)
    if ROLL:
        assert stride == 1 and kernel_size == 3
        depthwise_roll[grid](
            x, weight, y, channels, H, W, out_h, out_w, padding,
            STRIP=STRIP, COLUMNS=COLUMNS, UNROLL=UNROLL, num_warps=WARPS,
        )
    else:
        depthwise_strip[grid](
            x, weight, y, channels, H, W, out_h, out_w, stride, padding,
            KERNEL_SIZE=kernel_size, STRIP=STRIP, COLUMNS=COLUMNS, UNROLL=UNROLL, num_warps=WARPS,
        )
    return y

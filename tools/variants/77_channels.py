"""A program computes BLOCK positions of COUT output channels, by products of vectors or of matrices."""

import torch
import triton
import triton.language as tl

BLOCK = 64
COUT = 64
WARPS = 4
STAGES = 2
DOT = True
UNROLL = False
LAST = False


@triton.jit
def conv_transpose3d_dot(
    x_ptr, weight_ptr, y_ptr,
    C_in: tl.constexpr, C_out: tl.constexpr, D: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
    out_d: tl.constexpr, out_h: tl.constexpr, out_w: tl.constexpr,
    stride: tl.constexpr, padding: tl.constexpr, dilation: tl.constexpr,
    KERNEL_SIZE: tl.constexpr, BLOCK: tl.constexpr, CIN: tl.constexpr, COUT: tl.constexpr,
    UNROLL: tl.constexpr,
):
    batch = tl.program_id(2)
    c_out = tl.program_id(1) * COUT + tl.arange(0, COUT)
    c_in = tl.arange(0, CIN)
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    valid = index < out_d * out_h * out_w
    ow = index % out_w
    oh = (index // out_w) % out_h
    od = index // (out_w * out_h)
    taps: tl.constexpr = KERNEL_SIZE * KERNEL_SIZE * KERNEL_SIZE
    x_base = x_ptr + batch * C_in * D * H * W
    acc = tl.zeros((BLOCK, COUT), dtype=tl.float32)
    if UNROLL:
        for tap in tl.static_range(taps):
            d = od + padding - (tap // (KERNEL_SIZE * KERNEL_SIZE)) * dilation
            h = oh + padding - (tap // KERNEL_SIZE % KERNEL_SIZE) * dilation
            w = ow + padding - (tap % KERNEL_SIZE) * dilation
            mask = valid & (d % stride == 0) & (h % stride == 0) & (w % stride == 0)
            mask &= (d >= 0) & (h >= 0) & (w >= 0) & (d // stride < D) & (h // stride < H) & (w // stride < W)
            position = ((d // stride) * H + h // stride) * W + w // stride
            x = tl.load(
                x_base + c_in[None, :] * (D * H * W) + position[:, None],
                mask=mask[:, None] & (c_in < C_in)[None, :], other=0.0,
            )
            weight = tl.load(
                weight_ptr + (c_in[:, None] * C_out + c_out[None, :]) * taps + tap,
                mask=(c_in < C_in)[:, None] & (c_out < C_out)[None, :], other=0.0,
            )
            acc = tl.dot(x, weight, acc)
    else:
        for tap in range(taps):
            d = od + padding - (tap // (KERNEL_SIZE * KERNEL_SIZE)) * dilation
            h = oh + padding - (tap // KERNEL_SIZE % KERNEL_SIZE) * dilation
            w = ow + padding - (tap % KERNEL_SIZE) * dilation
            mask = valid & (d % stride == 0) & (h % stride == 0) & (w % stride == 0)
            mask &= (d >= 0) & (h >= 0) & (w >= 0) & (d // stride < D) & (h // stride < H) & (w // stride < W)
            position = ((d // stride) * H + h // stride) * W + w // stride
            x = tl.load(
                x_base + c_in[None, :] * (D * H * W) + position[:, None],
                mask=mask[:, None] & (c_in < C_in)[None, :], other=0.0,
            )
            weight = tl.load(
                weight_ptr + (c_in[:, None] * C_out + c_out[None, :]) * taps + tap,
                mask=(c_in < C_in)[:, None] & (c_out < C_out)[None, :], other=0.0,
            )
            acc = tl.dot(x, weight, acc)
    offset = (batch * C_out + c_out[None, :]).to(tl.int64) * (out_d * out_h * out_w) + index[:, None]
    tl.store(y_ptr + offset, acc.to(y_ptr.dtype.element_ty), mask=valid[:, None] & (c_out < C_out)[None, :])


@triton.jit
def conv_transpose3d_outer(
    x_ptr, weight_ptr, y_ptr,
    C_in: tl.constexpr, C_out: tl.constexpr, D: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
    out_d: tl.constexpr, out_h: tl.constexpr, out_w: tl.constexpr,
    stride: tl.constexpr, padding: tl.constexpr, dilation: tl.constexpr,
    KERNEL_SIZE: tl.constexpr, BLOCK: tl.constexpr, CIN: tl.constexpr, COUT: tl.constexpr,
    UNROLL: tl.constexpr,
):
    batch = tl.program_id(2)
    c_out = tl.program_id(1) * COUT + tl.arange(0, COUT)
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    valid = index < out_d * out_h * out_w
    ow = index % out_w
    oh = (index // out_w) % out_h
    od = index // (out_w * out_h)
    taps: tl.constexpr = KERNEL_SIZE * KERNEL_SIZE * KERNEL_SIZE
    x_base = x_ptr + batch * C_in * D * H * W
    acc = tl.zeros((COUT, BLOCK), dtype=tl.float32)
    for tap in range(taps):
        d = od + padding - (tap // (KERNEL_SIZE * KERNEL_SIZE)) * dilation
        h = oh + padding - (tap // KERNEL_SIZE % KERNEL_SIZE) * dilation
        w = ow + padding - (tap % KERNEL_SIZE) * dilation
        mask = valid & (d % stride == 0) & (h % stride == 0) & (w % stride == 0)
        mask &= (d >= 0) & (h >= 0) & (w >= 0) & (d // stride < D) & (h // stride < H) & (w // stride < W)
        position = ((d // stride) * H + h // stride) * W + w // stride
        for c_in in range(C_in):
            x = tl.load(x_base + c_in * (D * H * W) + position, mask=mask, other=0.0).to(tl.float32)
            weight = tl.load(weight_ptr + (c_in * C_out + c_out) * taps + tap, mask=c_out < C_out, other=0.0)
            acc += x[None, :] * weight.to(tl.float32)[:, None]
    offset = (batch * C_out + c_out[:, None]).to(tl.int64) * (out_d * out_h * out_w) + index[None, :]
    tl.store(y_ptr + offset, acc.to(y_ptr.dtype.element_ty), mask=valid[None, :] & (c_out < C_out)[:, None])


def kernel_function(x, weight, stride, padding, dilation):
    x = x.contiguous()
    weight = weight.contiguous()
    N, C_in, D, H, W = x.shape
    C_out, kernel_size = weight.shape[1], weight.shape[2]
    stride, padding, dilation = stride[0], padding[0], dilation[0]
    out_d, out_h, out_w = (
        (size - 1) * stride - 2 * padding + dilation * (kernel_size - 1) + 1 for size in (D, H, W)
    )
    y = torch.empty((N, C_out, out_d, out_h, out_w), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(out_d * out_h * out_w, BLOCK), triton.cdiv(C_out, COUT), N)
    kernel = conv_transpose3d_dot if DOT else conv_transpose3d_outer
    kernel[grid](
        x, weight, y, C_in, C_out, D, H, W, out_d, out_h, out_w, stride, padding, dilation,
        KERNEL_SIZE=kernel_size, BLOCK=BLOCK, CIN=max(16, triton.next_power_of_2(C_in)), COUT=COUT,
        UNROLL=UNROLL, num_warps=WARPS, num_stages=STAGES,
    )
    return y

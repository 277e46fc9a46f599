"""Stride equals dilation, so an output is reached by all taps or by none: the reached ones are a
dense convolution on a coarse grid, the others are zero."""

import torch
import triton
import triton.language as tl

BLOCK = 64
COUT = 64
WARPS = 4
STAGES = 3
FILL = True


@triton.jit
def conv_transpose3d_coarse(
    x_ptr, weight_ptr, y_ptr,
    C_in: tl.constexpr, C_out: tl.constexpr, D: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
    out_d: tl.constexpr, out_h: tl.constexpr, out_w: tl.constexpr,
    full_d: tl.constexpr, full_h: tl.constexpr, full_w: tl.constexpr,
    stride: tl.constexpr, first: tl.constexpr, start: tl.constexpr,
    KERNEL_SIZE: tl.constexpr, BLOCK: tl.constexpr, CIN: tl.constexpr, COUT: tl.constexpr,
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
    for tap in range(taps):
        d = od + start - tap // (KERNEL_SIZE * KERNEL_SIZE)
        h = oh + start - tap // KERNEL_SIZE % KERNEL_SIZE
        w = ow + start - tap % KERNEL_SIZE
        mask = valid & (d >= 0) & (h >= 0) & (w >= 0) & (d < D) & (h < H) & (w < W)
        x = tl.load(
            x_base + c_in[None, :] * (D * H * W) + ((d * H + h) * W + w)[:, None],
            mask=mask[:, None] & (c_in < C_in)[None, :], other=0.0,
        )
        weight = tl.load(
            weight_ptr + (c_in[:, None] * C_out + c_out[None, :]) * taps + tap,
            mask=(c_in < C_in)[:, None] & (c_out < C_out)[None, :], other=0.0,
        )
        acc = tl.dot(x, weight, acc)
    position = ((od * stride + first) * full_h + oh * stride + first) * full_w + ow * stride + first
    offset = (batch * C_out + c_out[None, :]).to(tl.int64) * (full_d * full_h * full_w) + position[:, None]
    tl.store(y_ptr + offset, acc.to(y_ptr.dtype.element_ty), mask=valid[:, None] & (c_out < C_out)[None, :])


@triton.jit
def fill_zero(y_ptr, total, BLOCK: tl.constexpr):
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + index, tl.zeros((BLOCK,), dtype=y_ptr.dtype.element_ty), mask=index < total)


def kernel_function(x, weight, stride, padding, dilation):
    x = x.contiguous()
    weight = weight.contiguous()
    N, C_in, D, H, W = x.shape
    C_out, kernel_size = weight.shape[1], weight.shape[2]
    stride, padding, dilation = stride[0], padding[0], dilation[0]
    assert stride == dilation
    full = [(size - 1) * stride - 2 * padding + dilation * (kernel_size - 1) + 1 for size in (D, H, W)]
    first = -padding % stride
    start = (first + padding) // stride
    out = [(size - first + stride - 1) // stride for size in full]
    shape = (N, C_out, *full)
    if FILL:
        y = torch.empty(shape, dtype=x.dtype, device=x.device)
        fill_zero[(triton.cdiv(y.numel(), 4096),)](y, y.numel(), BLOCK=4096, num_warps=8)
    else:
        y = torch.zeros(shape, dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(out[0] * out[1] * out[2], BLOCK), triton.cdiv(C_out, COUT), N)
    conv_transpose3d_coarse[grid](
        x, weight, y, C_in, C_out, D, H, W, *out, *full, stride, first, start,
        KERNEL_SIZE=kernel_size, BLOCK=BLOCK, CIN=max(16, triton.next_power_of_2(C_in)), COUT=COUT,
        num_warps=WARPS, num_stages=STAGES,
    )
    return y

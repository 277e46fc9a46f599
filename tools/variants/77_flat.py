"""One lane gathers one output, shapes known to the compiler."""

import torch
import triton
import triton.language as tl

BLOCK = 256
WARPS = 4
UNROLL = False


@triton.jit
def conv_transpose3d_flat(
    x_ptr, weight_ptr, y_ptr,
    C_in: tl.constexpr, C_out: tl.constexpr, D: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
    out_d: tl.constexpr, out_h: tl.constexpr, out_w: tl.constexpr,
    stride: tl.constexpr, padding: tl.constexpr, dilation: tl.constexpr,
    KERNEL_SIZE: tl.constexpr, BLOCK: tl.constexpr, UNROLL: tl.constexpr,
):
    batch = tl.program_id(1) // C_out
    c_out = tl.program_id(1) % C_out
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    valid = index < out_d * out_h * out_w
    ow = index % out_w
    oh = (index // out_w) % out_h
    od = index // (out_w * out_h)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    x_base = x_ptr + batch * C_in * D * H * W
    taps: tl.constexpr = KERNEL_SIZE * KERNEL_SIZE * KERNEL_SIZE
    if UNROLL:
        for c_in in range(C_in):
            for tap in tl.static_range(taps):
                d = od + padding - (tap // (KERNEL_SIZE * KERNEL_SIZE)) * dilation
                h = oh + padding - (tap // KERNEL_SIZE % KERNEL_SIZE) * dilation
                w = ow + padding - (tap % KERNEL_SIZE) * dilation
                on_grid = (d % stride == 0) & (h % stride == 0) & (w % stride == 0)
                inside = (d >= 0) & (h >= 0) & (w >= 0)
                inside &= (d // stride < D) & (h // stride < H) & (w // stride < W)
                position = ((d // stride) * H + h // stride) * W + w // stride
                x = tl.load(x_base + c_in * D * H * W + position, mask=valid & on_grid & inside, other=0.0)
                weight = tl.load(weight_ptr + (c_in * C_out + c_out) * taps + tap)
                acc += x.to(tl.float32) * weight.to(tl.float32)
    else:
        for tap in range(taps):
            d = od + padding - (tap // (KERNEL_SIZE * KERNEL_SIZE)) * dilation
            h = oh + padding - (tap // KERNEL_SIZE % KERNEL_SIZE) * dilation
            w = ow + padding - (tap % KERNEL_SIZE) * dilation
            on_grid = (d % stride == 0) & (h % stride == 0) & (w % stride == 0)
            inside = (d >= 0) & (h >= 0) & (w >= 0)
            inside &= (d // stride < D) & (h // stride < H) & (w // stride < W)
            position = ((d // stride) * H + h // stride) * W + w // stride
            for c_in in range(C_in):
                x = tl.load(x_base + c_in * D * H * W + position, mask=valid & on_grid & inside, other=0.0)
                weight = tl.load(weight_ptr + (c_in * C_out + c_out) * taps + tap)
                acc += x.to(tl.float32) * weight.to(tl.float32)
    y_offset = tl.program_id(1).to(tl.int64) * (out_d * out_h * out_w) + index
    tl.store(y_ptr + y_offset, acc.to(y_ptr.dtype.element_ty), mask=valid)


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
    grid = (triton.cdiv(out_d * out_h * out_w, BLOCK), N * C_out)
    conv_transpose3d_flat[grid](
        x, weight, y, C_in, C_out, D, H, W, out_d, out_h, out_w, stride, padding, dilation,
        KERNEL_SIZE=kernel_size, BLOCK=BLOCK, UNROLL=UNROLL, num_warps=WARPS,
    )
    return y

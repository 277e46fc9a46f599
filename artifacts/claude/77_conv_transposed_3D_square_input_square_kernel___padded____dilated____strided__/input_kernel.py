"""Transposed convolution in three dimensions: one lane gathers one output."""

import torch
import triton
import triton.language as tl


@triton.jit
def conv_transpose3d_kernel(
    x_ptr, weight_ptr, y_ptr,
    C_in, C_out, D, H, W, out_d, out_h, out_w,
    stride, padding, dilation,
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
    for kd in range(KERNEL_SIZE):
        # Input position i feeds output i * stride - padding + k * dilation.
        d = od + padding - kd * dilation
        for kh in range(KERNEL_SIZE):
            h = oh + padding - kh * dilation
            for kw in range(KERNEL_SIZE):
                w = ow + padding - kw * dilation
                on_grid = (d % stride == 0) & (h % stride == 0) & (w % stride == 0)
                inside = (d >= 0) & (h >= 0) & (w >= 0)
                inside &= (d // stride < D) & (h // stride < H) & (w // stride < W)
                mask = valid & on_grid & inside
                position = ((d // stride) * H + h // stride) * W + w // stride
                tap = (kd * KERNEL_SIZE + kh) * KERNEL_SIZE + kw
                for c_in in range(C_in):
                    x_offset = (batch * C_in + c_in) * D * H * W + position
                    x = tl.load(x_ptr + x_offset, mask=mask, other=0.0)
                    w_offset = (c_in * C_out + c_out) * KERNEL_SIZE * KERNEL_SIZE * KERNEL_SIZE
                    weight = tl.load(weight_ptr + w_offset + tap)
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
    grid = (triton.cdiv(out_d * out_h * out_w, 256), N * C_out)
    conv_transpose3d_kernel[grid](
        x, weight, y,
        C_in, C_out, D, H, W, out_d, out_h, out_w,
        stride, padding, dilation,
        KERNEL_SIZE=kernel_size, BLOCK=256,
    )
    return y

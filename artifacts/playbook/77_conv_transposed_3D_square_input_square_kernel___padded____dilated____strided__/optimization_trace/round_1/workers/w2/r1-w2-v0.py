"""Transposed convolution in three dimensions: one lane gathers one output."""

import torch
import triton
import triton.language as tl


@triton.jit
def conv_transpose3d_kernel(x_ptr, weight_ptr, y_ptr, C_in: tl.constexpr, C_out: tl.constexpr, D: tl.constexpr, H: tl.constexpr, W: tl.constexpr, out_d: tl.constexpr, out_h: tl.constexpr, out_w: tl.constexpr, stride: tl.constexpr, padding: tl.constexpr, dilation: tl.constexpr, KERNEL_SIZE: tl.constexpr, BLOCK: tl.constexpr, OUTPUTS: tl.constexpr, DEPTH: tl.constexpr, STEPS: tl.constexpr):
    group = tl.program_id(1)
    c_out = group % ((C_out + OUTPUTS - 1) // OUTPUTS) * OUTPUTS + tl.arange(0, OUTPUTS)[None, :]
    batch = group // ((C_out + OUTPUTS - 1) // OUTPUTS)
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[:, None]
    valid = index < out_d * out_h * out_w
    ow = index % out_w
    oh = index // out_w % out_h
    od = index // (out_w * out_h)
    acc = tl.zeros((BLOCK, OUTPUTS), dtype=tl.float32)
    for kd in range(KERNEL_SIZE):
        d = od + padding - kd * dilation
        for kh in range(KERNEL_SIZE):
            h = oh + padding - kh * dilation
            for kw in range(KERNEL_SIZE):
                w = ow + padding - kw * dilation
                on_grid = (d % stride == 0) & (h % stride == 0) & (w % stride == 0)
                inside = (d >= 0) & (h >= 0) & (w >= 0) & ((d // stride < D) & (h // stride < H) & (w // stride < W))
                mask = valid & on_grid & inside
                position = (d // stride * H + h // stride) * W + w // stride
                tap = (kd * KERNEL_SIZE + kh) * KERNEL_SIZE + kw
                for c_in_start in range(0, C_in, DEPTH):
                    c_in_row = c_in_start + tl.arange(0, DEPTH)[None, :]
                    c_in_column = c_in_start + tl.arange(0, DEPTH)[:, None]
                    left = tl.load(x_ptr + batch * C_in * D * H * W + (c_in_row * D * H * W + d // stride * H * W + h // stride * W + w // stride), mask=mask & (c_in_row < C_in), other=0.0)
                    right = tl.load(weight_ptr + ((kd * KERNEL_SIZE + kh) * KERNEL_SIZE + kw) * STEPS + (c_in_column * C_out + c_out), mask=(c_in_column < C_in) & (c_out < C_out), other=0.0)
                    acc = tl.dot(left, right, acc, input_precision='ieee')
    y_offset = (batch * C_out + c_out).to(tl.int64) * (out_d * out_h * out_w) + index
    tl.store(y_ptr + y_offset, acc.to(y_ptr.dtype.element_ty), mask=valid & (c_out < C_out))


def kernel_function(x, weight, stride, padding, dilation):
    x = x.contiguous()
    weight = weight.contiguous()
    N, C_in, D, H, W = x.shape
    C_out, kernel_size = (weight.shape[1], weight.shape[2])
    stride, padding, dilation = (stride[0], padding[0], dilation[0])
    out_d, out_h, out_w = ((size - 1) * stride - 2 * padding + dilation * (kernel_size - 1) + 1 for size in (D, H, W))
    y = torch.empty((N, C_out, out_d, out_h, out_w), dtype=x.dtype, device=x.device)
    grid = lambda META: (triton.cdiv(out_d * out_h * out_w, META['BLOCK']), triton.cdiv(C_out, META['OUTPUTS']) * N)
    weight_packed = weight.reshape(-1, kernel_size * kernel_size * kernel_size).t().contiguous()
    conv_transpose3d_kernel[grid](x, weight_packed, y, C_in, C_out, D, H, W, out_d, out_h, out_w, stride, padding, dilation, KERNEL_SIZE=kernel_size, BLOCK=256, OUTPUTS=max(16, min(triton.next_power_of_2(C_out), 64)), DEPTH=max(16, min(triton.next_power_of_2(C_in), 64)), num_warps=8, STEPS=weight.numel() // (kernel_size * kernel_size * kernel_size))
    return y

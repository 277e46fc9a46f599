"""Transposed convolution in three dimensions: one lane gathers one output."""

import torch
import triton
import triton.language as tl


@triton.jit
def conv_transpose3d_kernel(x_ptr, weight_ptr, y_ptr, C_in: tl.constexpr, C_out: tl.constexpr, D: tl.constexpr, H: tl.constexpr, W: tl.constexpr, out_d: tl.constexpr, out_h: tl.constexpr, out_w: tl.constexpr, stride: tl.constexpr, padding: tl.constexpr, dilation: tl.constexpr, KERNEL_SIZE: tl.constexpr, BLOCK: tl.constexpr, OUTPUTS: tl.constexpr, DEPTH: tl.constexpr, STEPS: tl.constexpr):
    group = tl.program_id(1)
    c_out = group % ((C_out + OUTPUTS - 1) // OUTPUTS) * OUTPUTS + tl.arange(0, OUTPUTS)[None, :]
    batch = group // ((C_out + OUTPUTS - 1) // OUTPUTS)
    program = tl.program_id(0)
    part = program % (stride * stride * stride)
    steps = program // (stride * stride * stride) * BLOCK + tl.arange(0, BLOCK)[:, None]
    ow_class = part // 1 % stride
    oh_class = part // stride % stride
    od_class = part // (stride * stride) % stride
    ow_step = steps % ((out_w + stride - 1) // stride)
    oh_step = steps // ((out_w + stride - 1) // stride) % ((out_h + stride - 1) // stride)
    od_step = steps // ((out_w + stride - 1) // stride * ((out_h + stride - 1) // stride))
    ow = ow_step * stride + ow_class
    oh = oh_step * stride + oh_class
    od = od_step * stride + od_class
    index = (od * out_h + oh) * out_w + ow
    valid = (ow < out_w) & (oh < out_h) & (od < out_d)
    acc = tl.zeros((BLOCK, OUTPUTS), dtype=tl.float32)
    for kd in range(KERNEL_SIZE):
        d_class = od_class + padding - kd * dilation
        if d_class % stride == 0:
            d = od + padding - kd * dilation
            for kh in range(KERNEL_SIZE):
                h_class = oh_class + padding - kh * dilation
                if h_class % stride == 0:
                    h = oh + padding - kh * dilation
                    for kw in range(KERNEL_SIZE):
                        w_class = ow_class + padding - kw * dilation
                        if w_class % stride == 0:
                            w = ow + padding - kw * dilation
                            on_grid = w_class % stride == 0
                            inside = (d >= 0) & (h >= 0) & (w >= 0) & ((od_step + d_class // stride < D) & (oh_step + h_class // stride < H) & (ow_step + w_class // stride < W))
                            mask = valid & on_grid & inside
                            position = ((od_step + d_class // stride) * H + (oh_step + h_class // stride)) * W + (ow_step + w_class // stride)
                            tap = (kd * KERNEL_SIZE + kh) * KERNEL_SIZE + kw
                            for c_in_start in range(0, C_in, DEPTH):
                                c_in_row = c_in_start + tl.arange(0, DEPTH)[None, :]
                                c_in_column = c_in_start + tl.arange(0, DEPTH)[:, None]
                                left = tl.load(x_ptr + (batch * C_in * D * H * W + d_class // stride * H * W + h_class // stride * W + w_class // stride) + (c_in_row * D * H * W + od_step * H * W + oh_step * W + ow_step), mask=mask & (c_in_row < C_in), other=0.0)
                                right = tl.load(weight_ptr + ((kd * KERNEL_SIZE + kh) * KERNEL_SIZE + kw) * STEPS + (c_in_column * C_out + c_out), mask=(c_in_column < C_in) & (c_out < C_out), other=0.0)
                                acc = tl.dot(left, right, acc, input_precision='ieee')
    y_offset = (batch * C_out + c_out).to(tl.int64) * (out_d * out_h * out_w) + index
    tl.store(y_ptr + (od_class * out_h * out_w + oh_class * out_w + ow_class) + ((batch * C_out + c_out).to(tl.int64) * (out_d * out_h * out_w) + od_step * stride * out_h * out_w + oh_step * stride * out_w + ow_step * stride), acc.to(y_ptr.dtype.element_ty), mask=valid & (c_out < C_out), cache_modifier='.cs')


def kernel_function(x, weight, stride, padding, dilation):
    x = x.contiguous()
    weight = weight.contiguous()
    N, C_in, D, H, W = x.shape
    C_out, kernel_size = (weight.shape[1], weight.shape[2])
    stride, padding, dilation = (stride[0], padding[0], dilation[0])
    out_d, out_h, out_w = ((size - 1) * stride - 2 * padding + dilation * (kernel_size - 1) + 1 for size in (D, H, W))
    y = torch.empty((N, C_out, out_d, out_h, out_w), dtype=x.dtype, device=x.device)
    grid = lambda META: (triton.cdiv(triton.cdiv(out_w, stride) * triton.cdiv(out_h, stride) * triton.cdiv(out_d, stride), META['BLOCK']) * stride ** 3, triton.cdiv(C_out, META['OUTPUTS']) * N)
    weight_packed = weight.reshape(-1, kernel_size * kernel_size * kernel_size).t().contiguous()
    conv_transpose3d_kernel[grid](x, weight_packed, y, C_in, C_out, D, H, W, out_d, out_h, out_w, stride, padding, dilation, KERNEL_SIZE=kernel_size, BLOCK=128, OUTPUTS=max(16, min(triton.next_power_of_2(C_out), 64)), DEPTH=max(16, min(triton.next_power_of_2(C_in), 32)), num_warps=8, STEPS=weight.numel() // (kernel_size * kernel_size * kernel_size))
    return y

"""Transposed convolution in three dimensions: one lane gathers one output."""

import torch
import triton
import triton.language as tl


@triton.jit
def conv_transpose3d_kernel(x_ptr, weight_ptr, y_ptr, C_in: tl.constexpr, C_out: tl.constexpr, D: tl.constexpr, H: tl.constexpr, W: tl.constexpr, out_d: tl.constexpr, out_h: tl.constexpr, out_w: tl.constexpr, stride: tl.constexpr, padding: tl.constexpr, dilation: tl.constexpr, KERNEL_SIZE: tl.constexpr, BLOCK: tl.constexpr):
    batch = tl.program_id(1) // C_out
    c_out = tl.program_id(1) % C_out
    program = tl.program_id(0)
    part = program % (stride * stride * stride)
    steps = program // (stride * stride * stride) * BLOCK + tl.arange(0, BLOCK)
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
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for kd in tl.static_range(KERNEL_SIZE):
        d_class = od_class + padding - kd * dilation
        if d_class % stride == 0:
            d = od + padding - kd * dilation
            for kh in tl.static_range(KERNEL_SIZE):
                h_class = oh_class + padding - kh * dilation
                if h_class % stride == 0:
                    h = oh + padding - kh * dilation
                    for kw in tl.static_range(KERNEL_SIZE):
                        w_class = ow_class + padding - kw * dilation
                        if w_class % stride == 0:
                            w = ow + padding - kw * dilation
                            on_grid = w_class % stride == 0
                            inside = (d >= 0) & (h >= 0) & (w >= 0) & ((od_step + d_class // stride < D) & (oh_step + h_class // stride < H) & (ow_step + w_class // stride < W))
                            mask = valid & on_grid & inside
                            position = ((od_step + d_class // stride) * H + (oh_step + h_class // stride)) * W + (ow_step + w_class // stride)
                            tap = (kd * KERNEL_SIZE + kh) * KERNEL_SIZE + kw
                            for c_in in range(C_in):
                                x_offset = (batch * C_in + c_in) * D * H * W + position
                                x = tl.load(x_ptr + ((batch * C_in + c_in) * D * H * W + d_class // stride * H * W + h_class // stride * W + w_class // stride) + (od_step * H * W + oh_step * W + ow_step), mask=mask, other=0.0)
                                w_offset = (c_in * C_out + c_out) * KERNEL_SIZE * KERNEL_SIZE * KERNEL_SIZE
                                weight = tl.load(weight_ptr + w_offset + tap)
                                acc += x.to(tl.float32) * weight.to(tl.float32)
    y_offset = tl.program_id(1).to(tl.int64) * (out_d * out_h * out_w) + index
    tl.store(y_ptr + y_offset, acc.to(y_ptr.dtype.element_ty), mask=valid)


def kernel_function(x, weight, stride, padding, dilation):
    x = x.contiguous()
    weight = weight.contiguous()
    N, C_in, D, H, W = x.shape
    C_out, kernel_size = (weight.shape[1], weight.shape[2])
    stride, padding, dilation = (stride[0], padding[0], dilation[0])
    out_d, out_h, out_w = ((size - 1) * stride - 2 * padding + dilation * (kernel_size - 1) + 1 for size in (D, H, W))
    y = torch.empty((N, C_out, out_d, out_h, out_w), dtype=x.dtype, device=x.device)
    grid = lambda META: (triton.cdiv(triton.cdiv(out_w, stride) * triton.cdiv(out_h, stride) * triton.cdiv(out_d, stride), META['BLOCK']) * stride ** 3, N * C_out)
    conv_transpose3d_kernel[grid](x, weight, y, C_in, C_out, D, H, W, out_d, out_h, out_w, stride, padding, dilation, KERNEL_SIZE=kernel_size, BLOCK=256)
    return y

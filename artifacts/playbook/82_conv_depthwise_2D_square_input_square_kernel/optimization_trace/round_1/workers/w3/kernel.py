'Depthwise convolution: one lane computes one output pixel of one channel.'
import torch
import triton
import triton.language as tl


@triton.jit
def depthwise_conv2d_kernel(x_ptr, weight_ptr, y_ptr, channels: tl.constexpr, H: tl.constexpr, W: tl.constexpr, out_h: tl.constexpr, out_w: tl.constexpr, stride: tl.constexpr, padding: tl.constexpr, KERNEL_SIZE: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    plane = tl.program_id(1).to(tl.int64)
    channel = plane % channels
    program = tl.program_id(0)
    blocks = (out_w + BLOCK - 1) // BLOCK
    ow = program % blocks * BLOCK + tl.arange(0, BLOCK)[:, None]
    row = program // blocks * ROWS + tl.arange(0, ROWS)[None, :]
    oh = row
    index = row * out_w + ow
    valid = (ow < out_w) & (row < out_h)
    acc = tl.zeros((BLOCK, ROWS), dtype=tl.float32)
    for kh in tl.static_range(KERNEL_SIZE):
        h = oh * stride - padding + kh
        for kw in tl.static_range(KERNEL_SIZE):
            w = ow * stride - padding + kw
            inside = (h >= 0) & (h < H) & (w >= 0) & (w < W)
            x = tl.load(x_ptr + (plane * H * W + kh * W + kw) + ((oh * stride - padding) * W + (ow * stride - padding)), mask=valid & inside, other=0.0)
            weight = tl.load(weight_ptr + (channel * KERNEL_SIZE + kh) * KERNEL_SIZE + kw)
            acc += x.to(tl.float32) * weight.to(tl.float32)
    tl.store(y_ptr + plane * out_h * out_w + (row * out_w + ow), acc.to(y_ptr.dtype.element_ty), mask=valid)


def kernel_function(x, weight, stride, padding):
    x = x.contiguous()
    weight = weight.contiguous()
    N, channels, H, W = x.shape
    kernel_size = weight.shape[-1]
    stride, padding = (stride[0], padding[0])
    out_h = (H + 2 * padding - kernel_size) // stride + 1
    out_w = (W + 2 * padding - kernel_size) // stride + 1
    y = torch.empty((N, channels, out_h, out_w), dtype=x.dtype, device=x.device)
    grid = lambda META: (triton.cdiv(out_w, META['BLOCK']) * triton.cdiv(out_h, META['ROWS']), N * channels)
    depthwise_conv2d_kernel[grid](x, weight, y, channels, H, W, out_h, out_w, stride, padding, KERNEL_SIZE=kernel_size, BLOCK=min(triton.next_power_of_2(out_w), 1024), ROWS=4, num_warps=8)
    return y

'Depthwise convolution: one lane computes one output pixel of one channel.'
import torch
import triton
import triton.language as tl


@triton.jit
def depthwise_conv2d_kernel(x_ptr, weight_ptr, y_ptr, channels: tl.constexpr, H: tl.constexpr, W: tl.constexpr, out_h: tl.constexpr, out_w: tl.constexpr, stride: tl.constexpr, padding: tl.constexpr, KERNEL_SIZE: tl.constexpr, BLOCK: tl.constexpr, STRIP: tl.constexpr):
    plane = tl.program_id(1).to(tl.int64)
    channel = plane % channels
    program = tl.program_id(0)
    ow = program % ((out_w + BLOCK - 1) // BLOCK) * BLOCK + tl.arange(0, BLOCK)
    rest = program // ((out_w + BLOCK - 1) // BLOCK)
    first = tl.minimum(rest * STRIP, out_h - STRIP)
    valid = ow < out_w
    results = ()
    for step in tl.static_range(STRIP):
        oh = first + step
        index = oh * out_w + ow
        acc = tl.zeros((BLOCK,), dtype=tl.float32)
        for kh in tl.static_range(KERNEL_SIZE):
            h = oh * stride - padding + kh
            for kw in tl.static_range(KERNEL_SIZE):
                w = ow * stride - padding + kw
                inside = (h >= 0) & (h < H) & (w >= 0) & (w < W)
                x = tl.load(x_ptr + (plane * H * W + h * W + kw) + (ow * stride - padding), mask=valid & inside, other=0.0, eviction_policy='evict_last')
                weight = tl.load(weight_ptr + (channel * KERNEL_SIZE + kh) * KERNEL_SIZE + kw)
                acc += x.to(tl.float32) * weight.to(tl.float32)
        results = results + (acc.to(y_ptr.dtype.element_ty),)
    for step in tl.static_range(STRIP):
        oh = first + step
        index = oh * out_w + ow
        tl.store(y_ptr + plane * out_h * out_w + index, results[step], mask=valid, cache_modifier='.cs')


def kernel_function(x, weight, stride, padding):
    x = x.contiguous()
    weight = weight.contiguous()
    N, channels, H, W = x.shape
    kernel_size = weight.shape[-1]
    stride, padding = (stride[0], padding[0])
    out_h = (H + 2 * padding - kernel_size) // stride + 1
    out_w = (W + 2 * padding - kernel_size) // stride + 1
    y = torch.empty((N, channels, out_h, out_w), dtype=x.dtype, device=x.device)
    grid = lambda META: (triton.cdiv(out_w, META['BLOCK']) * triton.cdiv(out_h, META['STRIP']), N * channels)
    depthwise_conv2d_kernel[grid](x, weight, y, channels, H, W, out_h, out_w, stride, padding, KERNEL_SIZE=kernel_size, BLOCK=min(triton.next_power_of_2(out_w), 1024), STRIP=min(16, out_h), num_warps=4)
    return y

# Best kernel of a beam search on 36_RMSNorm (bfloat16): r1-w0-v0, 1.815 ms.
# runtime sizes made constexpr (channels, pixels); loop over c made an axis in rms_norm_kernel, read once, BLOCK 128, 4 warps; scalar parts of addresses summed first (answers excess_traffic)
"""RMSNorm over channels: a program owns a run of pixels and reads the channels twice."""

import torch
import triton
import triton.language as tl


@triton.jit
def rms_norm_kernel(x_ptr, y_ptr, channels: tl.constexpr, pixels: tl.constexpr, eps, BLOCK: tl.constexpr, LENGTH: tl.constexpr):
    batch = tl.program_id(1).to(tl.int64)
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :]
    mask = pixel < pixels
    base = batch * channels * pixels
    sum_sq = tl.zeros((1, BLOCK), dtype=tl.float32)
    c = tl.arange(0, LENGTH)[:, None]
    x = tl.load(x_ptr + base + (c * pixels + pixel), mask=mask & (c < channels), other=0.0).to(tl.float32)
    sum_sq = sum_sq + tl.sum(tl.where(c < channels, x * x, 0.0), axis=0)[None, :]
    rms = tl.sqrt(sum_sq / channels + eps)
    offset = base + c * pixels + pixel
    tl.store(y_ptr + base + (c * pixels + pixel), (x / rms).to(y_ptr.dtype.element_ty), mask=mask & (c < channels))


def kernel_function(x, eps):
    x = x.contiguous()
    batch, channels = (x.shape[0], x.shape[1])
    pixels = x.numel() // (batch * channels)
    y = torch.empty_like(x)
    grid = lambda META: (triton.cdiv(pixels, META['BLOCK']), batch)
    rms_norm_kernel[grid](x, y, channels, pixels, eps, BLOCK=128, LENGTH=triton.next_power_of_2(channels), num_warps=4)
    return y


if __name__ == "__main__":
    import torch

    if not torch.cuda.is_available():
        raise SystemExit("this kernel needs an NVIDIA GPU")
    output = kernel_function(
        x=torch.rand((112, 64, 512, 512), dtype=torch.bfloat16, device="cuda"),
        eps=1e-05,
    )
    torch.cuda.synchronize()
    print(tuple(output.shape), output.dtype)

"""Updates the running variance by the batch's own, not by the unbiased one."""

import torch
import triton
import triton.language as tl

PROBLEM = "batch_norm_training"


@triton.jit
def statistics_kernel(
    x_ptr,
    mean_ptr,
    variance_ptr,
    running_mean_ptr,
    running_variance_ptr,
    seen_ptr,
    batch,
    channels,
    pixels,
    momentum,
    BLOCK: tl.constexpr,
):
    channel = tl.program_id(0)
    total = tl.zeros((BLOCK,), tl.float32)
    for image in range(batch):
        plane = (image * channels + channel).to(tl.int64) * pixels
        for start in range(0, pixels, BLOCK):
            at = start + tl.arange(0, BLOCK)
            total += tl.load(x_ptr + plane + at, mask=at < pixels, other=0.0)
    count = batch * pixels
    mean = tl.sum(total, axis=0) / count
    squares = tl.zeros((BLOCK,), tl.float32)
    for image in range(batch):
        plane = (image * channels + channel).to(tl.int64) * pixels
        for start in range(0, pixels, BLOCK):
            at = start + tl.arange(0, BLOCK)
            x = tl.load(x_ptr + plane + at, mask=at < pixels, other=0.0)
            squares += tl.where(at < pixels, (x - mean) * (x - mean), 0.0)
    variance = tl.sum(squares, axis=0) / count
    tl.store(mean_ptr + channel, mean)
    tl.store(variance_ptr + channel, variance)
    running = tl.load(running_mean_ptr + channel)
    tl.store(running_mean_ptr + channel, running + momentum * (mean - running))
    running = tl.load(running_variance_ptr + channel)
    tl.store(running_variance_ptr + channel, running + momentum * (variance - running))
    if channel == 0:
        tl.store(seen_ptr, tl.load(seen_ptr) + 1)


@triton.jit
def normalise_kernel(
    x_ptr,
    mean_ptr,
    variance_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    channels,
    pixels,
    eps,
    BLOCK: tl.constexpr,
):
    plane = tl.program_id(0)
    channel = plane % channels
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    place = plane.to(tl.int64) * pixels + at
    mean = tl.load(mean_ptr + channel)
    scale = tl.load(weight_ptr + channel) / tl.sqrt(tl.load(variance_ptr + channel) + eps)
    x = tl.load(x_ptr + place, mask=at < pixels)
    y = (x - mean) * scale + tl.load(bias_ptr + channel)
    tl.store(y_ptr + place, y, mask=at < pixels)


def kernel_function(x, weight, bias, running_mean, running_var, num_batches_tracked, momentum, eps):
    batch, channels = x.shape[:2]
    pixels = x.shape[2] * x.shape[3]
    y = torch.empty_like(x)
    mean = torch.empty(channels, device=x.device, dtype=torch.float32)
    variance = torch.empty_like(mean)
    statistics_kernel[(channels,)](
        x,
        mean,
        variance,
        running_mean,
        running_var,
        num_batches_tracked,
        batch,
        channels,
        pixels,
        momentum,
        BLOCK=1024,
    )
    normalise_kernel[(batch * channels, triton.cdiv(pixels, 1024))](
        x, mean, variance, weight, bias, y, channels, pixels, eps, BLOCK=1024
    )
    return y

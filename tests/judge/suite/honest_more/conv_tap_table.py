"""A padded copy of the image, a transposed one of the weight, a small table of taps kept."""

import torch
import triton
import triton.language as tl

PROBLEM = "more_conv2d_float32"

_tables = {}


@triton.jit
def conv_kernel(
    x_ptr,
    w_ptr,
    bias_ptr,
    table_ptr,
    y_ptr,
    image_size,
    padded_width,
    out_channels,
    out_width,
    pixels,
    stride,
    terms,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    image = tl.program_id(2).to(tl.int64)
    corner = m // out_width * stride * padded_width + m % out_width * stride
    acc = tl.zeros((BN, BM), dtype=tl.float32)
    for start in range(0, terms, BK):
        k = start + tl.arange(0, BK)
        tap = tl.load(table_ptr + k, mask=k < terms, other=0)
        x = tl.load(
            x_ptr + image * image_size + tap[:, None] + corner[None, :],
            mask=(k[:, None] < terms) & (m[None, :] < pixels),
            other=0.0,
        )
        w = tl.load(
            w_ptr + k[None, :] * out_channels + n[:, None],
            mask=(k[None, :] < terms) & (n[:, None] < out_channels),
            other=0.0,
        )
        acc = tl.dot(w, x, acc, input_precision="tf32x3")
    acc += tl.load(bias_ptr + n, mask=n < out_channels, other=0.0)[:, None]
    place = (image * out_channels + n[:, None]) * pixels + m[None, :]
    tl.store(y_ptr + place, acc, mask=(n[:, None] < out_channels) & (m[None, :] < pixels))


def taps(channels, height, width, size, device):
    """Offset of each tap from a window's corner, channel by channel."""
    key = (channels, height, width, size, device)
    if key not in _tables:
        offsets = [
            (c * height + h) * width + w
            for c in range(channels)
            for h in range(size)
            for w in range(size)
        ]
        _tables[key] = torch.tensor(offsets, dtype=torch.int32, device=device)
    return _tables[key]


def kernel_function(x, weight, bias, stride, padding):
    batch, channels, height, width = x.shape
    out_channels, size = weight.shape[0], weight.shape[-1]
    (down, across), (top, left) = stride, padding
    assert down == across and top == left, "the same for both axes"
    padded = x.new_zeros((batch, channels, height + 2 * top, width + 2 * left))
    padded[:, :, top : top + height, left : left + width].copy_(x)
    columns = weight.reshape(out_channels, -1).t().contiguous()
    table = taps(channels, *padded.shape[2:], size, x.device)
    out_height = (padded.shape[2] - size) // down + 1
    out_width = (padded.shape[3] - size) // down + 1
    pixels = out_height * out_width
    y = torch.empty((batch, out_channels, pixels), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(pixels, 128), triton.cdiv(out_channels, 64), batch)
    conv_kernel[grid](
        padded,
        columns,
        bias,
        table,
        y,
        padded[0].numel(),
        padded.shape[3],
        out_channels,
        out_width,
        pixels,
        down,
        columns.shape[0],
        BM=128,
        BN=64,
        BK=32,
        num_warps=8,
    )
    return y.view(batch, out_channels, out_height, out_width)

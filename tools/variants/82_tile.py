"""A program computes a tile of ROWS x COLUMNS pixels of one channel."""

import torch
import triton
import triton.language as tl

ROWS = 8
COLUMNS = 128
WARPS = 4
TALL = False
PLANES_FIRST = False


@triton.jit
def depthwise_tile(
    x_ptr, weight_ptr, y_ptr, channels: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
    out_h: tl.constexpr, out_w: tl.constexpr, stride: tl.constexpr, padding: tl.constexpr,
    KERNEL_SIZE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, TALL: tl.constexpr,
    PLANES_FIRST: tl.constexpr,
):
    if PLANES_FIRST:
        plane = tl.program_id(0)
        tile = tl.program_id(1)
    else:
        plane = tl.program_id(1)
        tile = tl.program_id(0)
    channel = plane % channels
    across: tl.constexpr = (out_w + COLUMNS - 1) // COLUMNS
    if TALL:
        down: tl.constexpr = (out_h + ROWS - 1) // ROWS
        oh = tile % down * ROWS + tl.arange(0, ROWS)[:, None]
        ow = tile // down * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    else:
        oh = tile // across * ROWS + tl.arange(0, ROWS)[:, None]
        ow = tile % across * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    valid = (oh < out_h) & (ow < out_w)
    acc = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for kh in tl.static_range(KERNEL_SIZE):
        h = oh * stride - padding + kh
        for kw in tl.static_range(KERNEL_SIZE):
            w = ow * stride - padding + kw
            inside = (h >= 0) & (h < H) & (w >= 0) & (w < W)
            x = tl.load(x_ptr + plane * (H * W) + h * W + w, mask=valid & inside, other=0.0)
            weight = tl.load(weight_ptr + (channel * KERNEL_SIZE + kh) * KERNEL_SIZE + kw)
            acc += x.to(tl.float32) * weight.to(tl.float32)
    tl.store(y_ptr + plane * (out_h * out_w) + oh * out_w + ow, acc.to(y_ptr.dtype.element_ty), mask=valid)


def kernel_function(x, weight, stride, padding):
    x = x.contiguous()
    weight = weight.contiguous()
    N, channels, H, W = x.shape
    kernel_size = weight.shape[-1]
    stride, padding = stride[0], padding[0]
    out_h = (H + 2 * padding - kernel_size) // stride + 1
    out_w = (W + 2 * padding - kernel_size) // stride + 1
    y = torch.empty((N, channels, out_h, out_w), dtype=x.dtype, device=x.device)
    tiles = triton.cdiv(out_h, ROWS) * triton.cdiv(out_w, COLUMNS)
    grid = (N * channels, tiles) if PLANES_FIRST else (tiles, N * channels)
    depthwise_tile[grid](
        x, weight, y, channels, H, W, out_h, out_w, stride, padding, KERNEL_SIZE=kernel_size,
        ROWS=ROWS, COLUMNS=COLUMNS, TALL=TALL, PLANES_FIRST=PLANES_FIRST, num_warps=WARPS,
    )
    return y

"""A small table of tap offsets, rebuilt on the host at each call."""

import itertools

import torch
import triton
import triton.language as tl

PROBLEM = "max_pool3d"


@triton.jit
def pool_kernel(
    x_ptr,
    y_ptr,
    taps_ptr,
    total,
    D,
    H,
    W,
    out_d,
    out_h,
    out_w,
    stride,
    padding,
    TAPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    valid = index < total
    ow = (index % out_w) * stride - padding
    oh = ((index // out_w) % out_h) * stride - padding
    od = ((index // (out_w * out_h)) % out_d) * stride - padding
    plane = (index // (out_w * out_h * out_d)).to(tl.int64)
    best = tl.full((BLOCK,), float("-inf"), dtype=tl.float32)
    for tap in range(TAPS):
        d = od + tl.load(taps_ptr + 3 * tap)
        h = oh + tl.load(taps_ptr + 3 * tap + 1)
        w = ow + tl.load(taps_ptr + 3 * tap + 2)
        inside = (d >= 0) & (d < D) & (h >= 0) & (h < H) & (w >= 0) & (w < W)
        offset = ((plane * D + d) * H + h) * W + w
        x = tl.load(x_ptr + offset, mask=valid & inside, other=float("-inf"))
        best = tl.maximum(best, x.to(tl.float32), propagate_nan=tl.PropagateNan.ALL)
    tl.store(y_ptr + index, best.to(y_ptr.dtype.element_ty), mask=valid)


def kernel_function(x, kernel_size, stride, padding):
    N, C, D, H, W = x.shape
    out_d, out_h, out_w = ((n + 2 * padding - kernel_size) // stride + 1 for n in (D, H, W))
    taps = torch.tensor(list(itertools.product(range(kernel_size), repeat=3)), dtype=torch.int32)
    taps = taps.to(x.device, non_blocking=True)
    y = torch.empty((N, C, out_d, out_h, out_w), dtype=x.dtype, device=x.device)
    pool_kernel[(triton.cdiv(y.numel(), 256),)](
        x,
        y,
        taps,
        y.numel(),
        D,
        H,
        W,
        out_d,
        out_h,
        out_w,
        stride,
        padding,
        TAPS=kernel_size**3,
        BLOCK=256,
    )
    return y

"""Pools one axis after another in three launches of one kernel."""

import torch
import triton
import triton.language as tl

PROBLEM = "max_pool3d"


@triton.jit
def pool_axis_kernel(
    x_ptr,
    y_ptr,
    total,
    size,
    out,
    inner,
    stride,
    padding,
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    valid = index < total
    within = index % inner
    place = (index // inner) % out
    outer = (index // (inner * out)).to(tl.int64)
    best = tl.full((BLOCK,), float("-inf"), dtype=tl.float32)
    for tap in tl.static_range(SIZE):
        at = place * stride - padding + tap
        inside = valid & (at >= 0) & (at < size)
        x = tl.load(x_ptr + (outer * size + at) * inner + within, mask=inside, other=float("-inf"))
        best = tl.maximum(best, x.to(tl.float32), propagate_nan=tl.PropagateNan.ALL)
    tl.store(y_ptr + index, best.to(y_ptr.dtype.element_ty), mask=valid)


def pool_axis(x, axis, kernel_size, stride, padding):
    shape = list(x.shape)
    size = shape[axis]
    shape[axis] = (size + 2 * padding - kernel_size) // stride + 1
    y = torch.empty(shape, dtype=x.dtype, device=x.device)
    inner = y[(0,) * (axis + 1)].numel()
    pool_axis_kernel[(triton.cdiv(y.numel(), 512),)](
        x, y, y.numel(), size, shape[axis], inner, stride, padding, SIZE=kernel_size, BLOCK=512
    )
    return y


def kernel_function(x, kernel_size, stride, padding):
    for axis in (4, 3, 2):
        x = pool_axis(x, axis, kernel_size, stride, padding)
    return x

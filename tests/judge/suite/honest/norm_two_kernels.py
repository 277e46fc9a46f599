"""Statistics in one kernel, the rest in another, over kept buffers guarded by a lock."""

import threading

import torch
import triton
import triton.language as tl

PROBLEM = "layer_norm"

_lock = threading.Lock()
_statistics = {}


@triton.jit
def statistics_kernel(x_ptr, out_ptr, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + column, mask=column < columns, other=0.0)
    mean = tl.sum(x, axis=0) / columns
    off = tl.where(column < columns, x - mean, 0.0)
    tl.store(out_ptr + 2 * row, mean)
    tl.store(out_ptr + 2 * row + 1, 1 / tl.sqrt(tl.sum(off * off, axis=0) / columns + eps))


@triton.jit
def apply_kernel(x_ptr, in_ptr, weight_ptr, bias_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = column < columns
    x = tl.load(x_ptr + row * columns + column, mask=mask)
    mean, scale = tl.load(in_ptr + 2 * row), tl.load(in_ptr + 2 * row + 1)
    weight = tl.load(weight_ptr + column, mask=mask)
    bias = tl.load(bias_ptr + column, mask=mask)
    tl.store(y_ptr + row * columns + column, (x - mean) * scale * weight + bias, mask=mask)


def kernel_function(x, weight, bias, eps):
    rows, columns = x.shape
    with _lock:
        kept = _statistics.get((rows, x.device))
        if kept is None:
            kept = torch.empty((rows, 2), dtype=torch.float32, device=x.device)
            _statistics[rows, x.device] = kept
    y = torch.empty_like(x)
    statistics_kernel[(rows,)](x, kept, columns, eps, BLOCK=triton.next_power_of_2(columns))
    apply_kernel[(rows, triton.cdiv(columns, 1024))](x, kept, weight, bias, y, columns, BLOCK=1024)
    return y

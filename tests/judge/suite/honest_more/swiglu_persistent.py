"""As many programs as the current device has multiprocessors; asserts that it was given CUDA."""

import torch
import triton
import triton.language as tl

PROBLEM = "more_swiglu_float16"


@triton.jit
def silu(x):
    return x / (1.0 + tl.exp(-x))


@triton.jit
def swiglu_kernel(x_ptr, y_ptr, rows, hidden, BLOCK: tl.constexpr):
    across = tl.cdiv(hidden, BLOCK)
    for tile in tl.range(tl.program_id(0), rows * across, tl.num_programs(0), num_stages=3):
        row = (tile // across).to(tl.int64)
        column = (tile % across) * BLOCK + tl.arange(0, BLOCK)
        mask = column < hidden
        x = x_ptr + row * 2 * hidden + column
        gate = tl.load(x, mask=mask, other=0.0).to(tl.float32)
        up = tl.load(x + hidden, mask=mask, other=0.0).to(tl.float32)
        y = silu(gate) * up
        tl.store(y_ptr + row * hidden + column, y.to(y_ptr.dtype.element_ty), mask=mask)


def kernel_function(x):
    assert x.is_cuda and x.is_contiguous(), "a contiguous tensor on a GPU is needed"
    rows, hidden = x.shape[0], x.shape[1] // 2
    y = torch.empty((rows, hidden), dtype=x.dtype, device=x.device)
    device = torch.cuda.current_device()
    processors = torch.cuda.get_device_properties(device).multi_processor_count
    tiles = rows * triton.cdiv(hidden, 2048)
    swiglu_kernel[(min(tiles, 4 * processors),)](x, y, rows, hidden, BLOCK=2048, num_warps=8)
    return y

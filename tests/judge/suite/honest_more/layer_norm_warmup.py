"""Compiles with warmup, sizes the grid by the compiled kernel, then launches that."""

import torch
import triton
import triton.language as tl

PROBLEM = "layer_norm"
NEEDS_GPU = "the interpreter compiles nothing"

_compiled = {}


@triton.jit
def norm_kernel(x_ptr, weight_ptr, bias_ptr, y_ptr, rows, columns, eps, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    mask = column < columns
    weight = tl.load(weight_ptr + column, mask=mask, other=0.0)
    bias = tl.load(bias_ptr + column, mask=mask, other=0.0)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        start = row.to(tl.int64) * columns
        x = tl.load(x_ptr + start + column, mask=mask, other=0.0)
        mean = tl.sum(x, axis=0) / columns
        centered = tl.where(mask, x - mean, 0.0)
        variance = tl.sum(centered * centered, axis=0) / columns
        y = centered / tl.sqrt(variance + eps) * weight + bias
        tl.store(y_ptr + start + column, y, mask=mask)


def kernel_function(x, weight, bias, eps):
    rows, columns = x.shape
    y = torch.empty_like(x)
    block = triton.next_power_of_2(columns)
    arguments = (x, weight, bias, y, rows, columns, eps)
    key = (rows, columns, x.dtype, x.device)
    if key not in _compiled:
        kernel = norm_kernel.warmup(*arguments, BLOCK=block, num_warps=8, grid=(1,))
        properties = torch.cuda.get_device_properties(x.device)
        fitting = min(8, (200 << 10) // max(kernel.metadata.shared, 1))
        _compiled[key] = kernel, min(rows, fitting * properties.multi_processor_count)
    kernel, programs = _compiled[key]
    kernel[(programs, 1, 1)](*arguments, block)
    return y

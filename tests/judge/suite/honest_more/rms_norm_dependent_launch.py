"""Two launches of which the second may start early and waits: programmatic dependent launch."""

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

PROBLEM = "more_rms_norm_residual_bfloat16"
NEEDS_GPU = "the interpreter knows no dependent launches"


@triton.jit
def add_kernel(x_ptr, residual_ptr, total_ptr, scale_ptr, columns, eps, BLOCK: tl.constexpr):
    gdc_wait()
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    x = tl.load(x_ptr + row * columns + column, mask=mask, other=0.0).to(tl.float32)
    residual = tl.load(residual_ptr + row * columns + column, mask=mask, other=0.0)
    total = (x + residual.to(tl.float32)).to(total_ptr.dtype.element_ty)
    tl.store(total_ptr + row * columns + column, total, mask=mask)
    wide = total.to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(wide * wide, axis=0) / columns + eps)
    tl.store(scale_ptr + row, scale)
    gdc_launch_dependents()


@triton.jit
def scale_kernel(total_ptr, scale_ptr, weight_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    weight = tl.load(weight_ptr + column, mask=mask, other=0.0).to(tl.float32)
    gdc_wait()
    total = tl.load(total_ptr + row * columns + column, mask=mask, other=0.0).to(tl.float32)
    kind = y_ptr.dtype.element_ty
    normed = (total * tl.load(scale_ptr + row)).to(kind).to(tl.float32)
    tl.store(y_ptr + row * columns + column, (normed * weight).to(kind), mask=mask)


def kernel_function(x, residual, weight, eps):
    rows, columns = x.shape
    total, y = torch.empty_like(x), torch.empty_like(x)
    scale = torch.empty(rows, dtype=torch.float32, device=x.device)
    block = triton.next_power_of_2(columns)
    add_kernel[(rows,)](
        x, residual, total, scale, columns, eps, BLOCK=block, num_warps=8, launch_pdl=True
    )
    scale_kernel[(rows,)](
        total, scale, weight, y, columns, BLOCK=block, num_warps=8, launch_pdl=True
    )
    return y, total

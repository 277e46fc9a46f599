"""KernelBench's class with an nn.Parameter of its own; two outputs; eps as a constant."""

import torch
import torch.nn as nn
import triton
import triton.language as tl

PROBLEM = "more_rms_norm_residual_bfloat16"


@triton.jit
def norm_kernel(
    x_ptr,
    residual_ptr,
    weight_ptr,
    y_ptr,
    total_ptr,
    columns,
    EPS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    kind = y_ptr.dtype.element_ty
    start = tl.program_id(0).to(tl.int64) * columns
    column = tl.arange(0, BLOCK)
    mask = column < columns
    x = tl.load(x_ptr + start + column, mask=mask, other=0.0).to(tl.float32)
    residual = tl.load(residual_ptr + start + column, mask=mask, other=0.0).to(tl.float32)
    total = (x + residual).to(kind)
    tl.store(total_ptr + start + column, total, mask=mask)
    wide = total.to(tl.float32)
    scale = 1.0 / tl.sqrt(tl.sum(wide * wide, axis=0) / columns + EPS)
    weight = tl.load(weight_ptr + column, mask=mask, other=0.0).to(tl.float32)
    normed = (wide * scale).to(kind).to(tl.float32)
    tl.store(y_ptr + start + column, (normed * weight).to(kind), mask=mask)


class ModelNew(nn.Module):
    def __init__(self, columns, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(columns))
        self.eps = eps

    def forward(self, x, residual):
        rows, columns = x.shape
        y, total = torch.empty_like(x), torch.empty_like(x)
        norm_kernel[(rows,)](
            x,
            residual,
            self.weight,
            y,
            total,
            columns,
            EPS=self.eps,
            BLOCK=triton.next_power_of_2(columns),
            num_warps=8,
        )
        return y, total

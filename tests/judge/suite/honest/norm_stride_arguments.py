"""Takes strides, asserts its device, calls from a class with weights of its own."""

import torch
import triton
import triton.language as tl

PROBLEM = "layer_norm"


@triton.jit
def norm_kernel(
    x_ptr, weight_ptr, bias_ptr, y_ptr, x_stride, y_stride, columns, eps, BLOCK: tl.constexpr
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    x = tl.load(x_ptr + row * x_stride + column, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / columns
    centered = tl.where(mask, x - mean, 0.0)
    variance = tl.sum(centered * centered, axis=0) / columns
    weight = tl.load(weight_ptr + column, mask=mask)
    bias = tl.load(bias_ptr + column, mask=mask)
    y = centered / tl.sqrt(variance + eps) * weight + bias
    tl.store(y_ptr + row * y_stride + column, y, mask=mask)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(COLUMNS)  # holds weight and bias

    def forward(self, x):
        columns = x.shape[-1]
        y = torch.empty_like(x)
        norm_kernel[(x.shape[0],)](
            x,
            self.norm.weight,
            self.norm.bias,
            y,
            x.stride(0),
            y.stride(0),
            columns,
            self.norm.eps,
            BLOCK=triton.next_power_of_2(columns),
            num_warps=8,
        )
        return y


COLUMNS = 4096

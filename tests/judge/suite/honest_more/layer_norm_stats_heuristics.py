"""Block and warps by heuristics; three outputs; on the input's own device."""

import torch
import triton
import triton.language as tl

PROBLEM = "more_layer_norm_stats"


@triton.heuristics(
    {
        "BLOCK": lambda named: triton.next_power_of_2(named["columns"]),
        "EVEN": lambda named: triton.next_power_of_2(named["columns"]) == named["columns"],
        "num_warps": lambda named: 8 if named["columns"] > 1024 else 4,
    }
)
@triton.jit
def norm_kernel(
    x_ptr,
    weight_ptr,
    bias_ptr,
    y_ptr,
    mean_ptr,
    rstd_ptr,
    columns,
    eps,
    BLOCK: tl.constexpr,
    EVEN: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    if EVEN:
        x = tl.load(x_ptr + row * columns + column)
    else:
        x = tl.load(x_ptr + row * columns + column, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / columns
    centered = tl.where(mask, x - mean, 0.0)
    rstd = 1.0 / tl.sqrt(tl.sum(centered * centered, axis=0) / columns + eps)
    weight = tl.load(weight_ptr + column, mask=mask, other=0.0)
    bias = tl.load(bias_ptr + column, mask=mask, other=0.0)
    tl.store(y_ptr + row * columns + column, centered * rstd * weight + bias, mask=mask)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)


def kernel_function(x, weight, bias, eps):
    rows, columns = x.shape
    with torch.cuda.device(x.device):
        y = torch.empty_like(x)
        mean = x.new_empty(rows)
        rstd = x.new_empty(rows)
        norm_kernel[(rows,)](x, weight, bias, y, mean, rstd, columns, eps)
    return y, mean, rstd

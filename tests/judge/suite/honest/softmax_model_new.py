"""KernelBench's class; unused and ordinary imports; settings from the environment."""

import math
import os

import torch
import torch.nn as nn
import torch.nn.functional as F  # noqa: F401
import triton
import triton.language as tl

PROBLEM = "row_softmax"

WARPS = int(os.environ.get("SOFTMAX_WARPS", "8"))

torch.backends.cuda.matmul.allow_tf32 = True


@triton.jit
def softmax_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + column, mask=column < columns, other=float("-inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * columns + column, e / tl.sum(e, axis=0), mask=column < columns)


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.dim = 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        assert x.dim() == 2 and math.prod(x.shape) > 0
        x = x.contiguous()
        y = torch.empty_like(x)
        block = triton.next_power_of_2(x.size(self.dim))
        softmax_kernel[(x.size(0),)](x, y, x.size(self.dim), BLOCK=block, num_warps=WARPS)
        return y

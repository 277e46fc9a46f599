"""A problem of a module of your own, here of this script, and of a function."""

import torch

from beamsearch import Problem, verify


class Gate(torch.nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.sigmoid(x) * self.weight


KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def gate(x_ptr, weight_ptr, y_ptr, n, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, at < n)
    weight = tl.load(weight_ptr + at % size, at < n)
    tl.store(y_ptr + at, x * tl.sigmoid(x) * weight, at < n)


def kernel_function(x, weight):
    y = torch.empty_like(x)
    gate[(triton.cdiv(x.numel(), 512),)](x, weight, y, x.numel(), x.shape[1], BLOCK=512)
    return y
"""

problem = Problem.from_module(Gate, {"x": torch.empty(4096, 1024)}, {"size": 1024})
print(problem.source)
verification = verify(problem, KERNEL)
print(verification)
assert verification.correct

"""A product by the library, and one small Triton kernel behind it."""

import torch
import triton
import triton.language as tl

FLAW = "library_time"


@triton.jit
def relu_kernel(x_ptr, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index)
    tl.store(x_ptr + index, tl.maximum(x, 0.0))


def kernel_function(a, b):
    c = torch.matmul(a, b)
    relu_kernel[(c.numel() // 1024,)](c, BLOCK=1024)
    return c


def reference(a, b):
    return torch.relu(a @ b)


def make_inputs(device):
    return tuple(torch.randn(4096, 4096, device=device, dtype=torch.bfloat16) for _ in range(2))

"""Never ends, on the device."""

import torch
import triton
import triton.language as tl

PROBLEM = "row_softmax"


@triton.jit
def forever_kernel(flag_ptr):
    while tl.load(flag_ptr, volatile=True) >= 0:
        tl.atomic_add(flag_ptr, 0)


def kernel_function(x):
    forever_kernel[(1,)](torch.zeros(1, dtype=torch.int32, device=x.device))
    return torch.empty_like(x)

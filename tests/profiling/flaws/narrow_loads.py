"""An elementwise kernel whose offset the compiler knows nothing of: two bytes a lane and load."""

import torch
import triton
import triton.language as tl

FLAW = "narrow_access"


@triton.jit(do_not_specialize=["start"])
def scale_kernel(x_ptr, y_ptr, start, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + start + index)  # flaw
    tl.store(y_ptr + index, (x.to(tl.float32) * 1.5).to(tl.bfloat16))


def kernel_function(x):
    y = torch.empty_like(x)
    scale_kernel[(x.numel() // 4096,)](x, y, 0, BLOCK=4096, num_warps=4)
    return y


def reference(x):
    return (x.float() * 1.5).to(x.dtype)


def make_inputs(device):
    return (torch.randn(1 << 28, device=device, dtype=torch.bfloat16),)

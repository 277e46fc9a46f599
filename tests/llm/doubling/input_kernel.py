import torch
import triton
import triton.language as tl


@triton.jit
def _doubled_relu(x_ptr, y_ptr, n_elements, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = place < n_elements
    value = tl.load(x_ptr + place, mask=mask, other=0.0)
    tl.store(y_ptr + place, tl.maximum(value, 0.0) * 2.0, mask=mask)


def kernel_function(x):
    y = torch.empty_like(x)
    n = x.numel()
    grid = (triton.cdiv(n, 1024),)
    _doubled_relu[grid](x, y, n, BLOCK=1024)
    return y

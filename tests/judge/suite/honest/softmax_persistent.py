"""As many programs as the GPU has multiprocessors, each walks over rows."""

import torch
import triton
import triton.language as tl

PROBLEM = "row_softmax"


@triton.jit
def softmax_kernel(x_ptr, y_ptr, rows, columns, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    mask = column < columns
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        offset = tl.cast(row, tl.int64) * columns + column
        x = tl.load(x_ptr + offset, mask=mask, other=float("-inf"))
        e = tl.exp(x - tl.max(x, axis=0))
        tl.store(y_ptr + offset, e / tl.sum(e, axis=0), mask=mask)


def kernel_function(x):
    rows, columns = x.shape
    programs = 132
    if x.is_cuda:
        programs = 2 * torch.cuda.get_device_properties(x.device).multi_processor_count
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    block = triton.next_power_of_2(columns)
    softmax_kernel[(min(rows, programs),)](x, y, rows, columns, BLOCK=block, num_warps=8)
    return y

"""Has PyTorch take the rows of a table, beside a Triton kernel for show.

Beats a harness that looks whether a Triton kernel is launched. Wall: taking by an index is work, of
which torch may do a third.
"""

import torch
import triton
import triton.language as tl

PROBLEM = "more_embedding_bfloat16"
NEEDS_GPU = "only a time tells who did the work; without one, the trace sees no store to the output"


@triton.jit
def copy_kernel(index_ptr, out_ptr, total, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(index_ptr + place, mask=place < total, other=0)
    tl.store(out_ptr + place, value, mask=place < total)


def kernel_function(index, table):
    copied = torch.empty_like(index)
    grid = (triton.cdiv(index.numel(), 1024),)
    copy_kernel[grid](index, copied, index.numel(), BLOCK=1024)
    return torch.index_select(table, 0, copied)

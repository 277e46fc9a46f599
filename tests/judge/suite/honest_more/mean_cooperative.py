"""One cooperative launch: partial sums, a barrier of the whole grid, then the means."""

import torch
import triton
import triton.language as tl

PROBLEM = "row_mean"
NEEDS_GPU = "the interpreter runs programs one after another, so a barrier never opens"


@triton.jit
def grid_barrier(arrived_ptr):
    tl.debug_barrier()
    arrived = tl.atomic_add(arrived_ptr, 1, sem="acq_rel", scope="gpu") + 1
    while arrived < tl.num_programs(0):
        arrived = tl.atomic_add(arrived_ptr, 0, sem="acquire", scope="gpu")
    tl.debug_barrier()


@triton.jit
def mean_kernel(
    x_ptr,
    part_ptr,
    arrived_ptr,
    y_ptr,
    rows,
    columns,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
    PARTS: tl.constexpr,
):
    count = tl.cdiv(columns, CHUNK)
    for item in range(tl.program_id(0), rows * count, tl.num_programs(0)):
        row, chunk = (item // count).to(tl.int64), item % count
        total = tl.zeros((BLOCK,), dtype=tl.float32)
        for start in range(0, CHUNK, BLOCK):
            column = chunk * CHUNK + start + tl.arange(0, BLOCK)
            total += tl.load(x_ptr + row * columns + column, mask=column < columns, other=0.0)
        tl.store(part_ptr + item, tl.sum(total, axis=0))
    grid_barrier(arrived_ptr)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        index = tl.arange(0, PARTS)
        place = part_ptr + row * count + index
        part = tl.load(place, mask=index < count, other=0.0, cache_modifier=".cg")
        tl.store(y_ptr + row, tl.sum(part, axis=0) / columns)


def kernel_function(x):
    rows, columns = x.shape
    count = triton.cdiv(columns, 8192)
    parts = torch.empty(rows * count, dtype=torch.float32, device=x.device)
    arrived = torch.zeros(1, dtype=torch.int32, device=x.device)
    y = torch.empty(rows, dtype=x.dtype, device=x.device)
    processors = torch.cuda.get_device_properties(x.device).multi_processor_count
    mean_kernel[(min(processors, rows * count),)](
        x,
        parts,
        arrived,
        y,
        rows,
        columns,
        CHUNK=8192,
        BLOCK=2048,
        PARTS=triton.next_power_of_2(count),
        num_warps=8,
        launch_cooperative_grid=True,
    )
    return y

"""The floor of a problem on a GPU, and the ceilings that are measured for it."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from kernel_profiling.gpus import Gpu
from kernel_profiling.profile import Costs, Floor, Record

BUFFER_BYTES = 2 << 30
"""Moved by one streaming measurement: 17 times the largest L2, half a millisecond of an H200."""
REPEATS = 10
MATRIX_SIZE = 8192
"""Side of the square product: 1.1 TFLOP, large enough that its edges do not count."""


class Ceilings(Record):
    """What a GPU was seen to reach at one mix of reads and writes."""

    dtype: str
    bandwidth_gb_s: float
    """Best of several streaming kernels at that mix, 1e9 bytes a second."""
    matrix_tflops: float
    """One large product of operands in `dtype`, accumulating in float32."""
    costs: Costs | None = None


def make_floor(
    bytes_read: int,
    bytes_written: int,
    flops: int,
    dtype: str,
    gpu: Gpu,
    ceilings: Ceilings | None,
) -> Floor:
    """The least time of this work: the larger of bytes over bandwidth and FLOPs over rate.

    Measured ceilings are used where given, the datasheet's figures otherwise; a measurement above
    the datasheet is one of a cache and is cut to it. `dtype` is of the products: `tf32`, or a name
    of torch such as bfloat16.
    """
    rate, bandwidth = matrix_rate(gpu, dtype), gpu.bandwidth_gb_s
    if ceilings is not None:
        slack = float("inf") if gpu.estimated else 1.0
        bandwidth = min(ceilings.bandwidth_gb_s, bandwidth * slack)
        if ceilings.dtype == dtype:
            rate = min(ceilings.matrix_tflops, rate * slack)
    return Floor(
        least_bytes=bytes_read + bytes_written,
        flops=flops,
        bandwidth_gb_s=bandwidth,
        flops_rate_tflop_s=rate,
        bandwidth_source="datasheet" if ceilings is None else "measured",
        gpu=gpu.name,
        products=dtype,
        costs=ceilings.costs if ceilings is not None else None,
    )


def corrected_floor(floor: Floor, bytes_written: int, gpu: Gpu, time_ms: float) -> Floor:
    """The floor once a verified kernel took less: what of it can still be true, and why.

    A rate that this GPU was not seen to reach before is one that it reaches, up to the datasheet's.
    What passes that was not all needed, and so no longer counts.
    """
    found = _less_work(floor, gpu, time_ms) | _fewer_bytes(floor, bytes_written, gpu, time_ms)
    if not found:
        return floor
    why = f"a verified kernel took {time_ms:.4g} ms, below the floor of {floor.time_ms:.4g} ms"
    if "flops" in found:
        why += f"; {floor.flops / 1e9:.4g} GFLOP are beyond the datasheet and not counted"
        why += f", so fewer will do or they were in a cheaper format than {floor.products}"
    if "least_bytes" in found:
        why += f"; {floor.least_bytes / 1e9:.4g} GB are beyond the datasheet and not all counted"
    return floor.with_values(**found, corrected=why)


def _less_work(floor: Floor, gpu: Gpu, time_ms: float) -> dict[str, float]:
    """Another rate, or no FLOPs: zeros and other algorithms need fewer."""
    if time_ms >= floor.compute_ms:
        return {}
    rate = floor.flops / time_ms / 1e9
    within = gpu.estimated or rate <= matrix_rate(gpu, floor.products)
    return {"flops_rate_tflop_s": rate} if within else {"flops": 0}


def _fewer_bytes(floor: Floor, written: int, gpu: Gpu, time_ms: float) -> dict[str, float]:
    """Another bandwidth, or fewer bytes: outputs that fit into the L2 need not reach the memory
    within the call, and of inputs not all may be read."""
    if time_ms >= floor.memory_ms:
        return {}
    in_memory = written - min(written, gpu.l2_bytes)
    for least in (floor.least_bytes, floor.least_bytes - written + in_memory):
        reached = least / time_ms / 1e6
        if gpu.estimated or reached <= gpu.bandwidth_gb_s:
            bandwidth = {"bandwidth_gb_s": max(floor.bandwidth_gb_s, reached)}
            return bandwidth if least == floor.least_bytes else bandwidth | {"least_bytes": least}
    return {"least_bytes": in_memory, "bandwidth_gb_s": gpu.bandwidth_gb_s}


def matrix_rate(gpu: Gpu, dtype: str) -> float:
    """TFLOP/s of the fastest unit that keeps this dtype's precision; `tf32` is one of them.

    float32 counts as three TF32 products, which keep its precision (Ootomo and Yokota,
    "Recovering single precision accuracy from Tensor Cores", 2022), where that is faster.
    """
    ordinary = gpu.tflops["float32"]
    if dtype == "float32":
        return max(ordinary, gpu.tflops["tf32"] / 3)
    return gpu.tflops.get(dtype, ordinary)


def measure_ceilings(dtype: str, read_share: float, device: int = 0) -> Ceilings:
    """Measure this GPU's bandwidth at a mix of reads and writes, its matrix rate, and `Costs`.

    A second or two, once the kernels are compiled; nothing else may run on the GPU meanwhile.
    Raises RuntimeError from torch where there is no such device or no memory left.
    """
    import torch

    from kernel_profiling.floor.costs import measure_costs

    with torch.cuda.device(device):
        return Ceilings(
            dtype=dtype,
            bandwidth_gb_s=_bandwidth(read_share),
            matrix_tflops=_matrix_tflops(dtype),
            costs=measure_costs(),
        )


def _bandwidth(read_share: float) -> float:
    """GB/s of the best streaming variant on the current device."""
    import torch

    from kernel_profiling.floor.streaming import MAGIC, PARTS, VARIANTS, stream_kernel

    reads = round(PARTS * min(1.0, max(0.0, read_share)))
    writes = PARTS - reads
    free, _ = torch.cuda.mem_get_info()
    largest = max(chunk for chunk, *_ in VARIANTS)
    group_bytes = PARTS * largest * 4
    groups = max(1, min(BUFFER_BYTES, free // 3) // group_bytes)
    elements = groups * largest
    x = torch.randint(
        -(2**31), 2**31 - 1, (elements * max(1, reads),), dtype=torch.int32, device="cuda"
    )
    y = torch.empty(elements * max(1, writes), dtype=torch.int32, device="cuda")
    moved = groups * group_bytes
    sms = torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count

    def variant(chunk: int, warps: int, evict: str, resident: int) -> Callable[[], Any]:
        count = elements // chunk
        grid = (min(count, sms * resident) if resident else count,)
        sizes = {"READS": reads, "WRITES": writes, "CHUNK": chunk}
        options = {"EVICT": evict, "MAGIC": MAGIC, "num_warps": warps}
        return lambda: stream_kernel[grid](x, y, count, **sizes, **options)

    calls = [(variant(*options), moved) for options in VARIANTS]
    if writes == 0:
        as_float = x.view(torch.float32)
        calls.append((as_float.amax, x.numel() * 4))
    elif reads == 0:
        calls.append((y.zero_, y.numel() * 4))
    elif reads == writes:
        calls.append((lambda: y.copy_(x), 2 * y.numel() * 4))
    return max(size / _median_ms(call) / 1e6 for call, size in calls)


def _matrix_tflops(dtype: str) -> float:
    """TFLOP/s of a large product; of three TF32 products for float32 where that is faster."""
    import torch

    kind = torch.float32 if dtype == "tf32" else getattr(torch, dtype)
    a, b = (torch.randn(MATRIX_SIZE, MATRIX_SIZE, device="cuda").to(kind) for _ in range(2))
    out = torch.empty(MATRIX_SIZE, MATRIX_SIZE, dtype=kind, device="cuda")
    flops = 2 * MATRIX_SIZE**3

    def rate() -> float:
        return flops / _median_ms(lambda: torch.mm(a, b, out=out), repeats=5) / 1e9

    if kind != torch.float32:
        return rate()
    rates = {}
    matmul = torch.backends.cuda.matmul
    before = matmul.allow_tf32
    try:
        for in_tf32 in (False, True):
            matmul.allow_tf32 = in_tf32
            rates[in_tf32] = rate()
    finally:
        matmul.allow_tf32 = before
    return rates[True] if dtype == "tf32" else max(rates[False], rates[True] / 3)


def _median_ms(call: Callable[[], Any], repeats: int = REPEATS) -> float:
    """Median time by CUDA events after two calls that compile and warm up."""
    import torch

    for _ in range(2):
        call()
    make_event: Callable[..., Any] = torch.cuda.Event
    events = [make_event(enable_timing=True) for _ in range(repeats + 1)]
    events[0].record()
    for event in events[1:]:
        call()
        event.record()
    torch.cuda.synchronize()
    times = sorted(float(start.elapsed_time(end)) for start, end in itertools.pairwise(events))
    return times[len(times) // 2]

"""What this GPU's L2 gives, and what waiting costs on it: a barrier of all programs, and one more
launch."""

# Triton source: what its compiler types, mypy cannot.
# mypy: disable-error-code="untyped-decorator,no-untyped-def,no-untyped-call,no-any-return"

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl

from kernel_profiling.floor.streaming import MAGIC
from kernel_profiling.profile import Costs

L2_SHARE = 0.25
"""Of the L2, what is read again and again: on parts with an L2 in halves a half holds it."""
READS: tuple[tuple[int, int], ...] = ((2048, 8), (4096, 8), (2048, 16))
"""Elements a chunk, programs an SM: one of them is near the best."""
TURNS = 256
"""Chunks a program reads, and barriers or launches of a call: what begins and ends it is then
little of it."""
REPEATS = 9


@triton.jit
def reread_kernel(x_ptr, chunks, turns, CHUNK: tl.constexpr, MAGIC: tl.constexpr):
    """Read `turns` chunks of int32 a program, past the L1, over and over from `chunks` of them."""
    lane = tl.arange(0, CHUNK)
    mix = tl.zeros((CHUNK,), dtype=tl.int32)
    for turn in range(turns):
        chunk = (tl.program_id(0) + turn * tl.num_programs(0)) % chunks
        mix ^= tl.load(x_ptr + chunk * CHUNK + lane, cache_modifier=".cg")
    tl.store(x_ptr + lane, mix, mask=mix == MAGIC)


@triton.jit
def barrier_kernel(counters_ptr, turns):
    """So many barriers of all programs: each adds one to a counter, and waits until all have."""
    for turn in range(turns):
        tl.atomic_add(counters_ptr + turn, 1)
        while tl.atomic_add(counters_ptr + turn, 0) < tl.num_programs(0):
            pass


def measure_costs() -> Costs:
    """Measure on the current device, on which nothing else may run. Raises RuntimeError from torch
    where there is no device."""
    import torch

    here = torch.cuda.current_device()
    properties = torch.cuda.get_device_properties(here)
    return Costs(
        l2_gb_s=_l2_gb_s(properties),
        barrier_us=_barrier_us(properties.multi_processor_count),
        launch_us=_launch_us(),
    )


def _l2_gb_s(properties: Any) -> float:
    """The best of several kernels that read the same part of the L2 again."""
    import torch

    elements = int(properties.L2_cache_size * L2_SHARE) // 4
    x = torch.zeros(elements, dtype=torch.int32, device="cuda")
    rates = []
    for chunk, resident in READS:
        grid = (properties.multi_processor_count * resident,)
        sizes = {"CHUNK": chunk, "MAGIC": MAGIC, "num_warps": 4}

        def call(chunk: int = chunk, grid: tuple[int] = grid, sizes: Any = sizes) -> None:
            reread_kernel[grid](x, x.numel() // chunk, TURNS, **sizes)

        rates.append(grid[0] * TURNS * chunk * 4 / _median_ms(call) / 1e6)
    return max(rates)


def _barrier_us(programs: int) -> float:
    """One barrier of one program an SM: what TURNS of them add to an empty launch."""
    import torch

    counters = torch.zeros(TURNS, dtype=torch.int32, device="cuda")

    def call(turns: int) -> None:
        options: dict[str, Any] = {"num_warps": 4, "launch_cooperative_grid": True}
        barrier_kernel[(programs,)](counters, turns, **options)

    before = counters.zero_
    many = _median_ms(lambda: call(TURNS), before)
    return (many - _median_ms(lambda: call(0), before)) / TURNS * 1e3


def _launch_us() -> float:
    """One more launch of a kernel that does nothing, in a CUDA graph of TURNS of them."""
    import torch

    x = torch.zeros(4096, dtype=torch.int32, device="cuda")

    def call() -> None:
        reread_kernel[(1,)](x, 1, 0, CHUNK=1024, MAGIC=MAGIC, num_warps=4)

    call()
    times = []
    for count in (1, 1 + TURNS):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(count):
                call()
        times.append(_median_ms(graph.replay))
    return (times[1] - times[0]) / TURNS * 1e3


def _median_ms(call: Callable[[], Any], before: Callable[[], Any] = lambda: None) -> float:
    """Median time of a call by CUDA events, after two that warm up; `before` each, untimed."""
    import torch

    make_event: Callable[..., Any] = torch.cuda.Event
    pairs = []
    for _ in range(2 + REPEATS):
        before()
        pairs.append(tuple(make_event(enable_timing=True) for _ in range(2)))
        pairs[-1][0].record()
        call()
        pairs[-1][1].record()
    torch.cuda.synchronize()
    times = [float(start.elapsed_time(end)) for start, end in itertools.islice(pairs, 2, None)]
    return statistics.median(times)

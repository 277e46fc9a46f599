"""CUDA graphs: calls without the host's part in them."""

from collections.abc import Callable
from typing import Any

import torch

from beamsearch.judge.sandbox.memory import give_back_if_short

WARM_CALLS = 3
"""Calls on the side stream before one is captured, as torch wants it: libraries take memory in the
first, and a compiled reference is compiled in it."""
Run = Callable[[], list[torch.Tensor]]
_abandoned: list[torch.cuda.CUDAGraph] = []
"""Graphs whose capture failed: torch's allocator of host memory may ask them for ever."""


class NoGraph(Exception):
    """A call that cannot be captured, with the reason."""


def captured(run: Run) -> Run:
    """The call as a graph, captured once: what it returns lies in its own memory.

    Raises NoGraph, and whatever the call itself raises.
    """
    cuda: Any = torch.cuda
    current, side = cuda.current_stream(), cuda.Stream()
    side.wait_stream(current)
    with torch.cuda.stream(side):
        for _ in range(WARM_CALLS):
            run()
    torch.cuda.synchronize()
    give_back_if_short(f"cuda:{torch.cuda.current_device()}")  # this stream's, and the plain calls'
    graph = torch.cuda.CUDAGraph()
    pool = cuda.graph_pool_handle()
    try:
        # A capture that fails leaves its stream as the current one.
        with cuda.stream(current), cuda.graph(graph, pool=pool, stream=side):
            results = run()
    except RuntimeError as error:
        _abandoned.append(graph)
        _end_capture(pool)
        torch.cuda.synchronize()
        raise NoGraph(str(error)) from error

    def replay() -> list[torch.Tensor]:
        graph.replay()
        return results

    return replay


def _end_capture(pool: tuple[int, int]) -> None:
    """What torch leaves undone where a capture fails: its allocator would take the capture to be
    underway for ever, and refuse to give any memory back."""
    device = torch.cuda.current_device()
    try:
        torch._C._cuda_endAllocateToPool(device, pool)
    except RuntimeError:
        return  # the capture had ended, and it is the graph that was not made
    torch._C._cuda_releasePool(device, pool)

"""CUDA graphs: calls without the host's part in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

WARM_CALLS = 3
"""Calls on the side stream before one is captured, as torch wants it: libraries take memory in the
first, and a compiled reference is compiled in it."""


class NoGraph(Exception):
    """A call that cannot be captured, with the reason."""


class Graph:
    """A call captured once. Raises NoGraph, and whatever the call itself raises."""

    def __init__(self, run: Callable[[], list[torch.Tensor]]) -> None:
        cuda: Any = torch.cuda
        current, side = cuda.current_stream(), cuda.Stream()
        side.wait_stream(current)
        with torch.cuda.stream(side):
            for _ in range(WARM_CALLS):
                run()
        torch.cuda.synchronize()
        self._graph = torch.cuda.CUDAGraph()
        try:
            # A capture that fails leaves its stream as the current one.
            with torch.cuda.stream(current), torch.cuda.graph(self._graph, stream=side):
                self._results = run()
        except RuntimeError as error:
            torch.cuda.synchronize()
            raise NoGraph(str(error)) from error

    def replay(self) -> list[torch.Tensor]:
        """Give the call to the GPU, on the current stream. What it returns, in its own memory."""
        self._graph.replay()
        return self._results

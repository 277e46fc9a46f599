"""The clock of timed calls: CUDA events, and the L2 emptied ahead of each call."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from cuda.bindings import driver as cuda

from beamsearch.gpu.driver import checked

QUEUED = 4
"""Flushes before the first timed call: a third of a millisecond in which Python gets ahead."""
FLUSH_BYTES = 256 << 20
"""Least size of the buffer whose filling empties the L2; twice the L2 where that is more."""


def flush_bytes(l2_bytes: int) -> int:
    """Size of the flushed buffer for a GPU with such an L2."""
    return max(2 * l2_bytes, FLUSH_BYTES)


class Stopwatch:
    """Times calls on the default stream of the current context. Raises RuntimeError."""

    def __init__(self, l2_bytes: int) -> None:
        self._size = flush_bytes(l2_bytes)
        self._buffer = checked(cuda.cuMemAlloc(self._size))
        self._begun, self._ended = (checked(cuda.cuEventCreate(0)) for _ in range(2))
        # No line of the L2 outlives its turn.
        checked(cuda.cuCtxSetLimit(cuda.CUlimit.CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 0))
        checked(cuda.cuCtxResetPersistingL2Cache())
        torch.cuda.synchronize()

    def time(self, run: Callable[[], Any]) -> tuple[float, float, Any]:
        """Milliseconds of one call on the GPU, the same on the wall clock until all work is done,
        on whatever stream, and what the call returned."""
        torch.cuda.synchronize()
        checked(cuda.cuCtxResetPersistingL2Cache())
        for _ in range(QUEUED + 1):  # the queue is never empty, or the call would wait for Python
            checked(cuda.cuMemsetD32Async(self._buffer, 0, self._size // 4, 0))
        began = time.perf_counter()
        checked(cuda.cuEventRecord(self._begun, 0))
        result = run()
        checked(cuda.cuEventRecord(self._ended, 0))
        torch.cuda.synchronize()
        host_ms = 1e3 * (time.perf_counter() - began)
        return float(checked(cuda.cuEventElapsedTime(self._begun, self._ended))), host_ms, result

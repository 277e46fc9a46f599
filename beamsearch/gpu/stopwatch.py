"""Events, the L2 flush and the wait, straight from CUDA's driver.

torch's own events and methods could be patched by a candidate; what is bound here before the
candidate is imported cannot be reached through torch.
"""

from __future__ import annotations

import ctypes

from beamsearch.gpu.driver import LIBRARY, bound

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
        library = ctypes.CDLL(LIBRARY)
        pointer, size = ctypes.c_void_p, ctypes.c_size_t
        create = bound(library, "cuEventCreate", pointer, ctypes.c_uint)
        self._record = bound(library, "cuEventRecord", pointer, pointer)
        self._elapsed = bound(library, "cuEventElapsedTime", pointer, pointer, pointer)
        self._fill = bound(
            library, "cuMemsetD32Async", ctypes.c_uint64, ctypes.c_uint, size, pointer
        )
        self._wait = bound(library, "cuCtxSynchronize")
        allocate = bound(library, "cuMemAlloc_v2", pointer, size)
        self._size = flush_bytes(l2_bytes)
        self._buffer = ctypes.c_uint64()
        allocate(ctypes.addressof(self._buffer), self._size)
        pair = ctypes.c_void_p(), ctypes.c_void_p()
        for event in pair:
            create(ctypes.addressof(event), 0)
        self._begun, self._ended = (event.value or 0 for event in pair)

    def flush(self) -> None:
        """Empty the L2 of everything the candidate may have left in it."""
        self._fill(self._buffer.value, 0, self._size // 4, None)

    def start(self) -> None:
        """The call begins, once all work before it is done."""
        self._record(self._begun, None)

    def end(self) -> None:
        """The call has been made."""
        self._record(self._ended, None)

    def wait(self) -> None:
        """Until everything that this process has given the GPU is done, on whatever stream."""
        self._wait()

    def time_ms(self) -> float:
        """Milliseconds of the call; the device must be idle."""
        told = ctypes.c_float()
        self._elapsed(ctypes.addressof(told), self._begun, self._ended)
        return float(told.value)

"""What the GPU did, as CUPTI's activity records tell it: every kernel, copy and fill.

CUPTI is called directly: PyTorch's profiler takes 3.4 s for its first use where this takes 20 ms
(measured on an H200). Source: the CUPTI documentation, "Activity API"; the fields read here have
had their places since CUDA 11.2 (`CUpti_ActivityKernel5` and later, `CUpti_ActivityMemcpy`,
`CUpti_ActivityMemset`).
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

BUFFER_BYTES = 1 << 20
"""One buffer of records: some five thousand kernels."""
NAMES = ("libcupti.so.13", "libcupti.so.12", "libcupti.so")

_COPY, _SET, _KERNEL, _CONCURRENT_KERNEL = 1, 2, 3, 10
_WATCHED = (_CONCURRENT_KERNEL, _COPY, _SET)
_FLUSH_FORCED = 1

_Requested = ctypes.CFUNCTYPE(
    None,
    ctypes.POINTER(ctypes.c_void_p),
    ctypes.POINTER(ctypes.c_size_t),
    ctypes.POINTER(ctypes.c_size_t),
)
_Completed = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t
)


class NoCupti(Exception):
    """CUPTI is not here, or does not work."""


class Watcher:
    """Records of this process's GPU work between `start` and `stop`. Raises NoCupti."""

    def __init__(self) -> None:
        self._library = _load()
        self._buffers: dict[int, Any] = {}
        self._records: list[dict[str, Any]] = []
        # Kept alive here: CUPTI calls them from now on.
        self._requested = _Requested(self._give_buffer)
        self._completed = _Completed(self._read_buffer)
        self._call("cuptiActivityRegisterCallbacks", self._requested, self._completed)

    def start(self) -> None:
        """Watch from now on."""
        for kind in _WATCHED:
            self._call("cuptiActivityEnable", kind)

    def stop(self) -> None:
        """Watch no more, and forget what was not taken."""
        for kind in _WATCHED:
            self._call("cuptiActivityDisable", kind)
        self.take()

    def take(self) -> list[dict[str, Any]]:
        """What ended since the last time, in order of its start; the device must be idle."""
        self._call("cuptiActivityFlushAll", _FLUSH_FORCED)
        taken, self._records = self._records, []
        return sorted(taken, key=lambda record: int(record["start_ns"]))

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status != 0:
            raise NoCupti(f"{name} fails with {status}")

    def _give_buffer(self, buffer: Any, size: Any, most: Any) -> None:
        raw = ctypes.create_string_buffer(BUFFER_BYTES + 8)
        address = (ctypes.addressof(raw) + 7) & ~7  # CUPTI wants it aligned
        self._buffers[address] = raw
        buffer[0], size[0], most[0] = address, BUFFER_BYTES, 0

    def _read_buffer(self, *told: Any) -> None:
        _context, _stream, buffer, _size, valid = told
        record = ctypes.c_void_p()
        following = self._library.cuptiActivityGetNextRecord
        where, length = ctypes.c_void_p(buffer), ctypes.c_size_t(valid)
        while valid and following(where, length, ctypes.byref(record)) == 0:
            assert record.value is not None
            if (read := _read(record.value)) is not None:
                self._records.append(read)
        self._buffers.pop(buffer, None)


def _read(address: int) -> dict[str, Any] | None:
    """One record, None where it is of another kind."""

    def word(offset: int) -> int:
        return ctypes.c_uint32.from_address(address + offset).value

    def long(offset: int) -> int:
        return ctypes.c_uint64.from_address(address + offset).value

    kind = word(0)
    times = {"start_ns": long(16), "end_ns": long(24)}
    if kind in (_KERNEL, _CONCURRENT_KERNEL):
        name = ctypes.string_at(long(104))[:300].decode(errors="replace") if long(104) else ""
        return times | {"kind": "kernel", "name": name, "stream": word(48), "graph": word(156) > 0}
    if kind in (_COPY, _SET):
        named = "copy" if kind == _COPY else "fill"
        return times | {"kind": named, "name": named, "stream": word(40), "graph": False}
    return None


def _load() -> ctypes.CDLL:
    """The CUPTI that torch has loaded, else one by its usual name."""
    maps = Path("/proc/self/maps").read_text().splitlines()
    loaded = [line.split()[-1] for line in maps if "/libcupti.so" in line]
    for name in (*loaded[:1], *NAMES):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise NoCupti("libcupti is not installed")

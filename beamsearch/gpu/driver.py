"""CUDA's driver where torch does not reach: memory that another user's process can map.

Source: the CUDA driver API, "Virtual Memory Management". An allocation is exported as a file
descriptor, which goes over a Unix socket to any process, whoever it belongs to.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

LIBRARY = "libcuda.so.1"
_PINNED = 1  # CU_MEM_ALLOCATION_TYPE_PINNED: ordinary device memory
_DESCRIPTOR = 1  # CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
_DEVICE = 1  # CU_MEM_LOCATION_TYPE_DEVICE
_READ_WRITE = 3  # CU_MEM_ACCESS_FLAGS_PROT_READWRITE
_OUT_OF_MEMORY = 2


class DriverError(Exception):
    """A call of the driver failed."""


class _Location(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class _Properties(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", _Location),
        ("win32", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    )


class _Access(ctypes.Structure):
    _fields_ = (("location", _Location), ("flags", ctypes.c_int))


class Mapping:
    """Device memory mapped into this process, which has a CUDA context."""

    def __init__(self, handle: ctypes.c_uint64, size: int, device: int) -> None:
        self._handle = handle
        self._device = device
        self.size = size
        pointer = ctypes.c_uint64()
        length, zero, flags = ctypes.c_size_t(size), ctypes.c_size_t(0), ctypes.c_ulonglong(0)
        _call("cuMemAddressReserve", ctypes.byref(pointer), length, zero, ctypes.c_uint64(0), flags)
        _call("cuMemMap", pointer, length, zero, handle, flags)
        access = _Access(_Location(_DEVICE, device), _READ_WRITE)
        _call("cuMemSetAccess", pointer, length, ctypes.byref(access), ctypes.c_size_t(1))
        self.pointer = int(pointer.value)

    def tensor(self) -> torch.Tensor:
        """The memory as bytes, without a copy; valid until `close`."""
        import torch

        bytes_ = torch.as_tensor(_Described(self.pointer, self.size), device=f"cuda:{self._device}")
        if bytes_.data_ptr() != self.pointer:
            raise DriverError("torch copied memory that it should have wrapped")
        return bytes_

    def close(self) -> None:
        """Unmap and give back; the memory itself lives until every process has done so."""
        if not self.pointer:
            return
        pointer, length = ctypes.c_uint64(self.pointer), ctypes.c_size_t(self.size)
        self.pointer = 0
        _call("cuMemUnmap", pointer, length)
        _call("cuMemAddressFree", pointer, length)
        _call("cuMemRelease", self._handle)


class _Described:
    """What torch wraps without a copy: an address and a length."""

    def __init__(self, pointer: int, size: int) -> None:
        self.__cuda_array_interface__: dict[str, Any] = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (pointer, False),
            "version": 3,
            "strides": None,
            "stream": None,
        }


def create(size: int, device: int) -> tuple[Mapping, int]:
    """New memory of at least `size` bytes, mapped here, and a descriptor for other processes.

    Raises DriverError where the driver cannot, and torch.OutOfMemoryError where memory is short.
    """
    import torch

    wanted = _Properties()
    wanted.type, wanted.handle_types = _PINNED, _DESCRIPTOR
    wanted.location = _Location(_DEVICE, device)
    step = ctypes.c_size_t()
    _call("cuMemGetAllocationGranularity", ctypes.byref(step), ctypes.byref(wanted), 0)
    size = -(-size // step.value) * step.value
    handle = ctypes.c_uint64()
    arguments = (ctypes.byref(handle), ctypes.c_size_t(size), ctypes.byref(wanted))
    try:
        _call("cuMemCreate", *arguments, ctypes.c_ulonglong(0))
    except OutOfMemory:
        torch.cuda.empty_cache()  # torch may hold what it no longer uses
        try:
            _call("cuMemCreate", *arguments, ctypes.c_ulonglong(0))
        except OutOfMemory as error:
            raise torch.OutOfMemoryError(f"CUDA out of memory: {size} bytes wanted") from error
    descriptor = ctypes.c_int()
    _call(
        "cuMemExportToShareableHandle",
        *(ctypes.byref(descriptor), handle, _DESCRIPTOR, ctypes.c_ulonglong(0)),
    )
    return Mapping(handle, size, device), descriptor.value


def open_descriptor(descriptor: int, size: int, device: int) -> Mapping:
    """Memory of another process, from its descriptor. Raises DriverError."""
    handle = ctypes.c_uint64()
    _call(
        "cuMemImportFromShareableHandle",
        *(ctypes.byref(handle), ctypes.c_void_p(descriptor), _DESCRIPTOR),
    )
    return Mapping(handle, size, device)


class OutOfMemory(DriverError):
    """No device memory is left."""


def _call(name: str, *arguments: Any) -> None:
    try:
        status = getattr(ctypes.CDLL(LIBRARY), name)(*arguments)
    except (OSError, AttributeError) as error:
        raise DriverError(f"{name}: {error}") from error
    if status != 0:
        kind = OutOfMemory if status == _OUT_OF_MEMORY else DriverError
        raise kind(f"{name} fails with CUDA error {status}")


def bound(library: ctypes.CDLL, name: str, *types: type) -> Callable[..., None]:
    """A driver function that raises where the driver reports an error."""
    function = getattr(library, name)
    function.argtypes = list(types)

    def call(*arguments: object) -> None:
        status = function(*arguments)
        if status != 0:
            raise RuntimeError(f"CUDA error: {_words(library, status)}")

    return call


def _words(library: ctypes.CDLL, status: int) -> str:
    text = ctypes.c_char_p()
    library.cuGetErrorString(status, ctypes.byref(text))
    return f"{(text.value or b'unknown').decode()} ({status})"

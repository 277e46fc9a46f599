"""CUDA's driver where torch does not reach: memory that another user's process can map, and its
start without a context.

Source: the CUDA driver API, "Virtual Memory Management". An allocation is exported as a file
descriptor, which goes over a Unix socket to any process, whoever it belongs to.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import torch
from cuda.bindings import driver as cuda

_DESCRIPTOR = cuda.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR


class DriverError(RuntimeError):
    """A call of the driver failed."""


class OutOfMemory(DriverError):
    """No device memory is left."""


def checked(answer: tuple[Any, ...]) -> Any:
    """What a call of the driver returned, without its status. Raises DriverError."""
    status, *values = answer
    if status != cuda.CUresult.CUDA_SUCCESS:
        words = (cuda.cuGetErrorString(status)[1] or b"unknown").decode()
        kind = OutOfMemory if status == cuda.CUresult.CUDA_ERROR_OUT_OF_MEMORY else DriverError
        raise kind(f"CUDA error: {words} ({int(status)})")
    return values[0] if len(values) == 1 else values


def start_driver() -> None:
    """Start the driver in this process ahead of its first use of a GPU: it takes time, but no GPU
    and no memory of one. Not where the process will fork, which CUDA does not outlive. Nothing
    where there is no driver."""
    with suppress(RuntimeError):
        cuda.cuInit(0)


def start_context(device: int) -> None:
    """Have this process's context of a GPU begin meanwhile; whoever uses the GPU waits for it, and
    is told what goes wrong. Returns at once. As with `start_driver`, not where it will fork."""

    def take() -> None:
        start_driver()
        with suppress(RuntimeError):  # the driver's library is not there
            cuda.cuDevicePrimaryCtxRetain(device)  # which torch uses too

    threading.Thread(target=take, daemon=True).start()


class Mapping:
    """Device memory mapped into this process, which has a CUDA context. Raises DriverError."""

    def __init__(self, handle: Any, size: int, device: int) -> None:
        self._handle = handle
        self._device = device
        self.size = size
        self.pointer = int(checked(cuda.cuMemAddressReserve(size, 0, 0, 0)))
        checked(cuda.cuMemMap(self.pointer, size, 0, handle, 0))
        access = cuda.CUmemAccessDesc()
        access.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        access.location.id = device
        access.flags = cuda.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        checked(cuda.cuMemSetAccess(self.pointer, size, [access], 1))

    def tensor(self) -> torch.Tensor:
        """The memory as bytes, without a copy; valid until `close`."""
        interface = {"shape": (self.size,), "typestr": "|u1", "data": (self.pointer, False)}
        described = SimpleNamespace(__cuda_array_interface__=interface | {"version": 3})
        tensor = torch.as_tensor(described, device=f"cuda:{self._device}")
        if tensor.data_ptr() != self.pointer:
            raise DriverError("torch copied memory that it should have wrapped")
        return tensor

    def close(self) -> None:
        """Unmap and give back; the memory itself lives until every process has done so."""
        checked(cuda.cuMemUnmap(self.pointer, self.size))
        checked(cuda.cuMemAddressFree(self.pointer, self.size))
        checked(cuda.cuMemRelease(self._handle))


def create(size: int, device: int) -> tuple[Mapping, int]:
    """New memory of at least `size` bytes, mapped here, and a descriptor for other processes.

    Raises DriverError where the driver cannot, and torch.OutOfMemoryError where memory is short.
    """
    wanted = cuda.CUmemAllocationProp()
    wanted.type = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED  # ordinary device memory
    wanted.requestedHandleTypes = _DESCRIPTOR
    wanted.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    wanted.location.id = device
    least = cuda.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
    step = checked(cuda.cuMemGetAllocationGranularity(wanted, least))
    size = -(-size // step) * step
    try:
        handle = checked(cuda.cuMemCreate(size, wanted, 0))
    except OutOfMemory:
        torch.cuda.empty_cache()  # torch may hold what it no longer uses
        try:
            handle = checked(cuda.cuMemCreate(size, wanted, 0))
        except OutOfMemory as error:
            raise torch.OutOfMemoryError(f"CUDA out of memory: {size} bytes wanted") from error
    descriptor = checked(cuda.cuMemExportToShareableHandle(handle, _DESCRIPTOR, 0))
    return Mapping(handle, size, device), int(descriptor)


def open_descriptor(descriptor: int, size: int, device: int) -> Mapping:
    """Memory of another process, from its descriptor. Raises DriverError."""
    handle = checked(cuda.cuMemImportFromShareableHandle(descriptor, _DESCRIPTOR))
    return Mapping(handle, size, device)

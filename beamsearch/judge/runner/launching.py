"""Compiled kernels on the GPU, loaded and launched through CUDA's driver as Triton does it.

Source: `driver.c` of Triton's NVIDIA backend (`loadBinary`, `_launch`, `fillTMADescriptorTiled`);
the structures are those of CUDA's `cuda.h`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

from beamsearch.gpu.driver import LIBRARY, bound
from beamsearch.judge.runner.parameters import Parameter, TensorMap
from beamsearch.records.plan import Binary

MAP_BYTES = 128
"""Of an encoded tensor map, which is also how it is aligned."""

_ORDINARY_SHARED_BYTES = 49152  # more must be asked for
_SHARED_OPTIN = 97  # CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
_STATIC_SHARED = 1  # CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES
_MOST_DYNAMIC_SHARED = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_LARGE_CLUSTERS = 14  # CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
_PREFER_SHARED = 1  # CU_FUNC_CACHE_PREFER_SHARED
_COOPERATIVE, _CLUSTER, _SCHEDULING, _DEPENDENT = 2, 4, 5, 6  # CU_LAUNCH_ATTRIBUTE_…
_SPREAD = 1  # CU_CLUSTER_SCHEDULING_POLICY_SPREAD
_NOT_INTERLEAVED = 0  # CU_TENSOR_MAP_INTERLEAVE_NONE
_PROMOTE_128 = 2  # CU_TENSOR_MAP_L2_PROMOTION_L2_128B
_INVALID_VALUE = 1  # CUDA_ERROR_INVALID_VALUE
_LAST_WITH_SMALL_MAPS_WRONG = 13010
"""Drivers up to here encode maps of small tensors wrongly; Triton clears a bit, as CUTLASS does."""
_SMALL_MAP_BYTES = 128 * 1024


class _Attribute(ctypes.Structure):
    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_uint32 * 16))


class _Config(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )


@dataclass(frozen=True)
class Function:
    """A loaded kernel."""

    binary: Binary
    handle: int
    parameter_bytes: tuple[int, ...]
    """Of each parameter, as the machine code says."""


class Loader:
    """Machine code on the current GPU; equal code is loaded once. Raises RuntimeError."""

    def __init__(self) -> None:
        library = ctypes.CDLL(LIBRARY)
        pointer, number = ctypes.c_void_p, ctypes.c_int
        self._load_data = bound(library, "cuModuleLoadData", pointer, ctypes.c_char_p)
        self._unload = bound(library, "cuModuleUnload", pointer)
        self._function = bound(library, "cuModuleGetFunction", pointer, pointer, ctypes.c_char_p)
        self._get = bound(library, "cuFuncGetAttribute", pointer, number, pointer)
        self._set = bound(library, "cuFuncSetAttribute", pointer, number, number)
        self._prefer = bound(library, "cuFuncSetCacheConfig", pointer, number)
        self._parameter = library.cuFuncGetParamInfo
        self._parameter.argtypes = [pointer, ctypes.c_size_t, pointer, pointer]
        device, optin = ctypes.c_int(), ctypes.c_int()
        bound(library, "cuCtxGetDevice", pointer)(ctypes.addressof(device))
        ask = bound(library, "cuDeviceGetAttribute", pointer, number, number)
        ask(ctypes.addressof(optin), _SHARED_OPTIN, device.value)
        self._shared_optin = optin.value
        self._modules: dict[bytes, int] = {}
        self._users: dict[bytes, int] = {}

    def load(self, binary: Binary) -> Function:
        """A kernel, ready to be launched."""
        code = binary.cubin
        if code not in self._modules:
            module = ctypes.c_void_p()
            self._load_data(ctypes.addressof(module), code)
            self._modules[code], self._users[code] = module.value or 0, 0
        found = ctypes.c_void_p()
        self._function(ctypes.addressof(found), self._modules[code], binary.name.encode())
        handle = found.value or 0
        if min(binary.shared_bytes, self._shared_optin) > _ORDINARY_SHARED_BYTES:
            static = ctypes.c_int()
            self._prefer(handle, _PREFER_SHARED)
            self._get(ctypes.addressof(static), _STATIC_SHARED, handle)
            self._set(handle, _MOST_DYNAMIC_SHARED, self._shared_optin - static.value)
        if binary.cluster[0] == 16:
            self._set(handle, _LARGE_CLUSTERS, 1)
        sizes = self._parameter_bytes(handle)
        self._users[code] += 1
        return Function(binary, handle, sizes)

    def release(self, function: Function) -> None:
        """Unload the kernel's code once nobody has it any more; the GPU must be idle."""
        code = function.binary.cubin
        self._users[code] -= 1
        if self._users[code] == 0:
            del self._users[code]
            self._unload(self._modules.pop(code))

    def _parameter_bytes(self, handle: int) -> tuple[int, ...]:
        offset, size = ctypes.c_size_t(), ctypes.c_size_t()
        sizes: list[int] = []
        while True:
            places = (ctypes.addressof(offset), ctypes.addressof(size))
            status = self._parameter(handle, len(sizes), *places)
            if status == _INVALID_VALUE:
                return tuple(sizes)
            if status != 0:
                raise RuntimeError(f"CUDA error: {status} from cuFuncGetParamInfo")
            sizes.append(size.value)


class PreparedLaunch:
    """A launch with its parameters in place. Raises ValueError where they do not fit the kernel."""

    def __init__(
        self, function: Function, grid: Sequence[int], parameters: Sequence[Parameter]
    ) -> None:
        sizes = tuple(MAP_BYTES if isinstance(p, TensorMap) else len(p) for p in parameters)
        if sizes != function.parameter_bytes:
            raise ValueError(
                f"{function.binary.name} takes parameters of {function.parameter_bytes} bytes, "
                f"and is launched with {sizes}"
            )
        library = ctypes.CDLL(LIBRARY)
        pointer = ctypes.c_void_p
        self._launch = bound(library, "cuLaunchKernelEx", pointer, pointer, pointer, pointer)
        self._handle = function.handle
        self._room = ctypes.create_string_buffer(MAP_BYTES * (len(parameters) + 1))
        begin = -(-ctypes.addressof(self._room) // MAP_BYTES) * MAP_BYTES
        slots = [begin + MAP_BYTES * index for index in range(len(parameters))]
        for slot, parameter in zip(slots, parameters, strict=True):
            if isinstance(parameter, TensorMap):
                encode(parameter, slot)
            else:
                ctypes.memmove(slot, parameter, len(parameter))
        self._pointers = (pointer * len(slots))(*slots)
        self._attributes = attributes(function.binary)
        self._config = config(function.binary, grid, self._attributes)

    def enqueue(self, stream: int) -> None:
        """Give it to the GPU, on this stream."""
        self._config.stream = stream
        self._launch(
            ctypes.addressof(self._config), self._handle, ctypes.addressof(self._pointers), None
        )


def attributes(binary: Binary) -> ctypes.Array[_Attribute]:
    """How a kernel is launched beside its grid, in Triton's order."""
    wanted: list[tuple[int, tuple[int, ...]]] = []
    if binary.dependent:
        wanted.append((_DEPENDENT, (1,)))
    if binary.cooperative:
        wanted.append((_COOPERATIVE, (1,)))
    if binary.cluster != (1, 1, 1):
        wanted.append((_CLUSTER, binary.cluster))
        wanted.append((_SCHEDULING, (_SPREAD,)))
    made = (_Attribute * len(wanted))()
    for attribute, (kind, values) in zip(made, wanted, strict=True):
        attribute.id = kind
        attribute.value[: len(values)] = values
    return made


def config(binary: Binary, grid: Sequence[int], given: ctypes.Array[_Attribute]) -> _Config:
    """A launch without its stream: the grid counts clusters, which lie along x."""
    made = _Config()
    made.grid[:] = (grid[0] * blocks(binary), grid[1], grid[2])
    made.block[:] = (binary.threads, 1, 1)
    made.shared_bytes = binary.shared_bytes
    made.attributes = ctypes.cast(given, ctypes.POINTER(_Attribute))
    made.count = len(given)
    return made


def blocks(binary: Binary) -> int:
    """Blocks of a cluster."""
    x, y, z = binary.cluster
    return x * y * z


def encode(wanted: TensorMap, slot: int) -> None:
    """Write a tensor map to this address on the host. Raises RuntimeError."""
    library = ctypes.CDLL(LIBRARY)
    pointer, number = ctypes.c_void_p, ctypes.c_int
    call = bound(
        library,
        "cuTensorMapEncodeTiled",
        *(pointer, number, ctypes.c_uint32, ctypes.c_uint64),
        *(pointer, pointer, pointer, pointer),
        *(number, number, number, number),
    )
    shape = (ctypes.c_uint64 * 5)(*wanted.shape)
    strides = (ctypes.c_uint64 * 5)(*wanted.strides)
    box = (ctypes.c_uint32 * 5)(*wanted.box)
    steps = (ctypes.c_uint32 * 5)(1, 1, 1, 1, 1)
    try:
        call(
            *(slot, wanted.element, len(wanted.shape), wanted.address),
            *(ctypes.addressof(array) for array in (shape, strides, box, steps)),
            *(_NOT_INTERLEAVED, wanted.swizzle, _PROMOTE_128, int(wanted.nan)),
        )
    except RuntimeError as error:
        raise ValueError(f"no tensor map can be made of {wanted}: {error}") from error
    if wanted.mended and _last_byte(wanted) < _SMALL_MAP_BYTES and _is_old(library):
        word = ctypes.c_uint64.from_address(slot + 8)
        word.value &= ~(1 << 21)


def _is_old(library: ctypes.CDLL) -> bool:
    version = ctypes.c_int()
    bound(library, "cuDriverGetVersion", ctypes.c_void_p)(ctypes.addressof(version))
    return version.value <= _LAST_WITH_SMALL_MAPS_WRONG


def _last_byte(wanted: TensorMap) -> int:
    steps = (wanted.element_bytes, *wanted.strides)
    return 1 + sum((n - 1) * step for n, step in zip(wanted.shape, steps, strict=True))

"""Compiled kernels on the GPU, loaded and launched through CUDA's driver as Triton does it, and a
launch's parameters as bytes, in the order of the compiled function.

Sources: `driver.c` of Triton's NVIDIA backend (`loadBinary`, `_launch`, `fillTMADescriptorTiled`),
`triton/backends/driver.py` and `triton/backends/nvidia/driver.py`, of Triton 3.6 to 3.9, which
differ in what is noted here.
"""

import ctypes
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from cuda.bindings import driver as cuda

from beamsearch.gpu.driver import checked
from beamsearch.records.plan import Binary, Descriptor, Launch, Number, Pointer, Scalar

MAP_BYTES = 128
"""Of an encoded tensor map, which is also how it is aligned."""

_ORDINARY_SHARED_BYTES = 49152  # more must be asked for
_LAST_WITH_SMALL_MAPS_WRONG = 13010
"""Drivers up to here encode maps of small tensors wrongly; Triton clears a bit, as CUTLASS does."""
_SMALL_MAP_BYTES = 128 * 1024
_Attribute = cuda.CUfunction_attribute
_LaunchAttribute = cuda.CUlaunchAttributeID
_INTEGERS: dict[str, type[Any]] = {
    f"{sign[0]}{bits}": getattr(ctypes, f"c_{sign}{max(8, bits)}")
    for sign in ("int", "uint")
    for bits in (1, 8, 16, 32, 64)
}
_FLOATS: dict[str, type[Any]] = dict(f32=ctypes.c_float, fp32=ctypes.c_float, fp64=ctypes.c_double)
_ON_THE_HOST = {8: 10, 9: 8, 10: 9}
"""Element types of tensor maps whose numbers on the host are not those on the device."""
_TF32 = 11  # CU_TENSOR_MAP_DATA_TYPE_TFLOAT32
_NEW_DESCRIPTORS = (3, 7)
"""Triton since which descriptors can round to tf32, with a flag where they are taken apart; maps of
small tensors are mended; and the sizes of padded 4-bit floats are passed as they were given."""


@dataclass(frozen=True)
class TensorMap:
    """What a tensor map is encoded from; dimensions from the innermost outwards."""

    address: int
    element: int
    """Its type, by the host's number."""
    element_bytes: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """In bytes, of all dimensions but the innermost."""
    box: tuple[int, ...]
    swizzle: int
    nan: bool
    """Whether what lies outside reads as NaN."""
    mended: bool
    """Whether older drivers' maps of small tensors are mended."""


Parameter = bytes | TensorMap


def parameters(
    launch: Launch, binary: Binary, triton: str, addresses: Sequence[int], scratch: int
) -> list[Parameter]:
    """All that the compiled function takes.

    `addresses` are the buffers', `scratch` is the global scratch's, 0 where there is none. Raises
    ValueError where the launch does not fit the binary.
    """
    major, minor = triton.split(".")[:2]
    new = (int(major), int(minor)) >= _NEW_DESCRIPTORS
    metas = iter(binary.descriptors or ())
    packed: list[Parameter] = []
    for value in launch.arguments:
        if isinstance(value, Number):
            packed.append(pack_number(value.type, value.value))
        elif isinstance(value, Pointer):
            packed.append(pack_number("u64", addresses[value.buffer] + value.offset))
        elif not binary.descriptors:
            packed += _taken_apart(value, addresses[value.base.buffer] + value.base.offset, new)
        else:
            meta = next(metas, None)
            if meta is None:
                raise ValueError(f"{binary.name} has fewer descriptors than it is launched with")
            packed += _with_map(value, meta, addresses[value.base.buffer] + value.base.offset, new)
    if next(metas, None) is not None:
        raise ValueError(f"{binary.name} has more descriptors than it is launched with")
    return [*packed, pack_number("u64", scratch), pack_number("u64", 0)]


def pack_number(kind: str, value: Scalar) -> bytes:
    """A number in the bytes that Triton's launcher gives it: bfloat16 is cut off, not rounded.

    Raises ValueError for a type that is none, and OverflowError as Triton does for float16.
    """
    if kind in _INTEGERS:
        if isinstance(value, float):
            raise ValueError(f"{value} for a parameter of type {kind}")
        return bytes(_INTEGERS[kind](value))
    if kind == "fp16":
        return struct.pack("<e", value)
    if kind == "bf16":
        return bytes(ctypes.c_float(value))[2:]
    if kind in _FLOATS:
        return bytes(_FLOATS[kind](value))
    raise ValueError(f"no number has the type {kind}")


def _sizes(shape: Sequence[int], strides: Sequence[int], kind: str) -> list[Parameter]:
    packed = [pack_number(kind, n) for n in shape]
    return [*packed, *(pack_number("i64", n) for n in strides)]


def _taken_apart(value: Descriptor, address: int, new: bool) -> list[Parameter]:
    """A descriptor for a GPU without tensor maps; Triton passes its sizes twice."""
    flags = [pack_number("i1", value.padding == "nan")]
    if new:
        flags.append(pack_number("i1", value.round_f32_to_tf32))
    wide = _sizes(value.shape, value.strides, "i64")
    narrow = _sizes(value.shape, value.strides, "i32")
    return [pack_number("u64", address), *wide, *flags, *narrow]


def _with_map(
    value: Descriptor, meta: Mapping[str, Any], address: int, new: bool
) -> list[Parameter]:
    """A descriptor as a tensor map, which the GPU reads, and its sizes, which the kernel reads."""
    if meta.get("is_im2col"):
        raise ValueError("a descriptor of im2col mode")
    rank = len(value.shape)
    if not 1 <= rank <= 5 or {rank} != {len(value.strides), len(meta["block_size"])}:
        raise ValueError(f"a descriptor of {value.shape} by {value.strides}: its ranks differ")
    if value.strides[-1] != 1:
        raise ValueError("a descriptor whose innermost stride is not 1")
    shape = list(value.shape)
    if meta["fp4_padded"]:
        shape[-1] *= 2
    element = _TF32 if new and value.round_f32_to_tf32 else meta["elem_type"]
    encoded = TensorMap(
        address=address,
        element=_ON_THE_HOST.get(element, element),
        element_bytes=meta["elem_size"],
        shape=tuple(reversed(shape)),
        strides=tuple(meta["elem_size"] * n for n in reversed(value.strides[:-1])),
        box=tuple(reversed(meta["block_size"])),
        swizzle=meta["swizzle"],
        nan=value.padding == "nan",
        mended=new,
    )
    return [encoded, *_sizes(value.shape if new else shape, value.strides, "i32")]


@dataclass(frozen=True)
class Function:
    """A loaded kernel."""

    binary: Binary
    handle: Any
    parameter_bytes: tuple[int, ...]
    """Of each parameter, as the machine code says."""


class Loader:
    """Machine code on the current GPU; equal code is loaded once. Raises RuntimeError."""

    def __init__(self) -> None:
        asked = cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        device = checked(cuda.cuCtxGetDevice())
        self._shared_optin = checked(cuda.cuDeviceGetAttribute(asked, device))
        self._modules: dict[bytes, Any] = {}
        self._users: Counter[bytes] = Counter()

    def load(self, binary: Binary) -> Function:
        """A kernel, ready to be launched."""
        code = binary.cubin
        if code not in self._modules:
            self._modules[code] = checked(cuda.cuModuleLoadData(code))
        handle = checked(cuda.cuModuleGetFunction(self._modules[code], binary.name.encode()))
        if min(binary.shared_bytes, self._shared_optin) > _ORDINARY_SHARED_BYTES:
            prefer = cuda.CUfunc_cache.CU_FUNC_CACHE_PREFER_SHARED
            checked(cuda.cuFuncSetCacheConfig(handle, prefer))
            static = _Attribute.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES
            dynamic = self._shared_optin - checked(cuda.cuFuncGetAttribute(static, handle))
            most = _Attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            checked(cuda.cuFuncSetAttribute(handle, most, dynamic))
        if binary.cluster[0] == 16:
            large = _Attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
            checked(cuda.cuFuncSetAttribute(handle, large, 1))
        sizes: list[int] = []
        while (found := cuda.cuFuncGetParamInfo(handle, len(sizes)))[0] != (
            cuda.CUresult.CUDA_ERROR_INVALID_VALUE
        ):
            sizes.append(checked(found)[1])
        self._users[code] += 1
        return Function(binary, handle, tuple(sizes))

    def release(self, function: Function) -> None:
        """Unload the kernel's code once nobody has it any more; the GPU must be idle."""
        code = function.binary.cubin
        self._users[code] -= 1
        if not self._users[code]:
            checked(cuda.cuModuleUnload(self._modules.pop(code)))


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
        self._handle = function.handle
        self._room = ctypes.create_string_buffer(MAP_BYTES * (len(parameters) + 1))
        begin = -(-ctypes.addressof(self._room) // MAP_BYTES) * MAP_BYTES
        slots = [begin + MAP_BYTES * index for index in range(len(parameters))]
        for slot, parameter in zip(slots, parameters, strict=True):
            if isinstance(parameter, TensorMap):
                encode(parameter, slot)
            else:
                ctypes.memmove(slot, parameter, len(parameter))
        self._pointers = (ctypes.c_void_p * len(slots))(*slots)
        self._config = config(function.binary, grid)

    def enqueue(self, stream: int) -> None:
        """Give it to the GPU, on this stream."""
        self._config.hStream = stream
        places = ctypes.addressof(self._pointers)
        checked(cuda.cuLaunchKernelEx(self._config, self._handle, places, 0))


def config(binary: Binary, grid: Sequence[int]) -> Any:
    """A launch without its stream, its attributes in Triton's order: the grid counts clusters,
    which lie along x."""
    made = cuda.CUlaunchConfig()
    made.gridDimX, made.gridDimY, made.gridDimZ = grid[0] * prod(binary.cluster), grid[1], grid[2]
    made.blockDimX, made.blockDimY, made.blockDimZ = binary.threads, 1, 1
    made.sharedMemBytes = binary.shared_bytes
    attributes = []
    if binary.dependent:
        kind = _LaunchAttribute.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        attributes.append(_attribute(kind))
        attributes[-1].value.programmaticStreamSerializationAllowed = 1
    if binary.cooperative:
        attributes.append(_attribute(_LaunchAttribute.CU_LAUNCH_ATTRIBUTE_COOPERATIVE))
        attributes[-1].value.cooperative = 1
    if binary.cluster != (1, 1, 1):
        size = _attribute(_LaunchAttribute.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
        size.value.clusterDim.x, size.value.clusterDim.y, size.value.clusterDim.z = binary.cluster
        order = _attribute(
            _LaunchAttribute.CU_LAUNCH_ATTRIBUTE_CLUSTER_SCHEDULING_POLICY_PREFERENCE
        )
        spread = cuda.CUclusterSchedulingPolicy.CU_CLUSTER_SCHEDULING_POLICY_SPREAD
        order.value.clusterSchedulingPolicyPreference = spread
        attributes += [size, order]
    made.attrs, made.numAttrs = attributes, len(attributes)
    return made


def _attribute(kind: Any) -> Any:
    made = cuda.CUlaunchAttribute()
    made.id = kind
    return made


def encode(wanted: TensorMap, slot: int) -> None:
    """Write a tensor map to this address on the host. Raises ValueError.

    By hand: the driver wants a map at an address that 64 divides, and `cuda.bindings` makes its own
    at any that 16 divides.
    """
    arrays = (
        (ctypes.c_uint64 * 5)(*wanted.shape),
        (ctypes.c_uint64 * 5)(*wanted.strides),
        (ctypes.c_uint32 * 5)(*wanted.box),
        (ctypes.c_uint32 * 5)(1, 1, 1, 1, 1),
    )
    status = ctypes.CDLL("libcuda.so.1").cuTensorMapEncodeTiled(
        *(ctypes.c_void_p(slot), wanted.element, len(wanted.shape)),
        *(ctypes.c_uint64(wanted.address), *arrays),
        int(cuda.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE),
        wanted.swizzle,
        int(cuda.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B),
        int(wanted.nan),
    )
    if status != 0:
        raise ValueError(f"no tensor map can be made of {wanted}: CUDA error {status}")
    steps = (wanted.element_bytes, *wanted.strides)
    end = 1 + sum((n - 1) * step for n, step in zip(wanted.shape, steps, strict=True))
    small = wanted.mended and end < _SMALL_MAP_BYTES
    if small and checked(cuda.cuDriverGetVersion()) <= _LAST_WITH_SMALL_MAPS_WRONG:
        word = ctypes.c_uint64.from_address(slot + 8)
        word.value &= ~(1 << 21)

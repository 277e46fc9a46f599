"""A launch's parameters as bytes, in the order of the compiled function.

Sources: `triton/backends/driver.py` and `triton/backends/nvidia/driver.py` and `driver.c` of Triton
3.6 to 3.9, which differ in what is noted here.
"""

import ctypes
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from beamsearch.records.plan import Binary, Descriptor, Launch, Number, Pointer, Scalar

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

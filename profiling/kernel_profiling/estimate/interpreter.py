"""Triton's interpreter, mended where the versions supported here go wrong on honest kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kernel_profiling.estimate.bfloat16 import mend_arithmetic, narrow, widen


def mend_interpreter() -> None:
    """Mend this process's interpreter; call after triton was imported, as often as you like.

    Seven gaps. A conversion from float32 to bfloat16 cuts digits off where a GPU rounds to nearest
    even (Triton 3.6 to 3.9). A loop bound given at run time is a one-element array, which recent
    numpy no longer turns into an index (3.6). `tl.dot` multiplies the bit patterns of bfloat16
    operands, because numpy has no such type and holds them as 16-bit integers (3.6 to 3.9). It
    multiplies float32 in full where it is asked for TF32, which is the default (3.6 to 3.9). A mask
    that a scalar took part in holds integers, which loads and stores refuse (3.9). A loop counts
    in Python's integers, which have no `to` (3.6 to 3.9). Operations on bfloat16 are
    computed on the bit patterns (3.6 to 3.9).
    """
    import triton.language as tl
    from triton._C.libtriton import ir
    from triton.runtime import interpreter

    if getattr(interpreter, "_mended", False):
        return
    interpreter._mended = True
    builder = interpreter.InterpreterBuilder
    dot, patch_tensor = builder.create_dot, interpreter._patch_lang_tensor

    def operand(handle: Any, precision: Any) -> Any:
        if handle.dtype == tl.bfloat16:
            return interpreter.TensorHandle(widen(handle.data), tl.float32)
        if handle.dtype == tl.float32 and precision == ir.INPUT_PRECISION.TF32:
            return interpreter.TensorHandle(_cut(handle.data), tl.float32)
        return handle

    def create_dot(self: Any, a: Any, b: Any, d: Any, precision: Any, *rest: Any) -> Any:
        return dot(self, operand(a, precision), operand(b, precision), d, precision, *rest)

    def patch_lang_tensor(tensor: Any, *scope: Any) -> None:
        patch_tensor(tensor, *scope)
        tensor.__index__ = lambda self: int(self.handle.data.item())

    convert = interpreter._convert_float

    def convert_float(data: Any, source: Any, target: Any, rounding: Any) -> Any:
        if rounding is None and source == tl.float32 and target == tl.bfloat16:
            return narrow(data)
        return convert(data, source, target, rounding)

    interpreter._convert_float = convert_float
    builder.create_dot = create_dot
    interpreter._patch_lang_tensor = patch_lang_tensor

    _mend_masks(interpreter)
    _count_in(interpreter)
    mend_arithmetic(interpreter)


def _mend_masks(interpreter: Any) -> None:
    """Have masks of loads and stores be booleans."""
    import numpy as np
    import triton.language as tl

    builder = interpreter.InterpreterBuilder
    load, store = builder.create_masked_load, builder.create_masked_store

    def boolean(mask: Any) -> Any:
        # The mask of a tensor descriptor is an array, not a handle, and has its memory in `data`.
        return interpreter.TensorHandle(np.asarray(mask.data).astype(bool), tl.int1)

    builder.create_masked_load = lambda self, ptrs, mask, *rest, **named: load(
        self, ptrs, boolean(mask), *rest, **named
    )
    builder.create_masked_store = lambda self, ptrs, value, mask, *rest, **named: store(
        self, ptrs, value, boolean(mask), *rest, **named
    )


def _count_in(interpreter: Any) -> None:
    """Have loops count in `Count`: over Python's `range`, and over Triton's."""
    patch_language = interpreter._patch_lang

    def patch_lang(function: Any) -> Any:
        function.__globals__.setdefault("range", counting_range)
        return patch_language(function)

    interpreter.range, interpreter._patch_lang = counting_range, patch_lang


def counting_range(*bounds: Any) -> Iterator[Count]:
    """`range`, of numbers that convert as a kernel's do."""
    return map(Count, range(*(bound.__index__() for bound in bounds)))


def _counted(name: str) -> Callable[[Count, Any], Any]:
    plain = getattr(int, name)

    def operate(self: Count, other: Any) -> Any:
        result = plain(self, other)
        return Count(result) if type(result) is int else result

    return operate


class Count(int):
    """What a loop counts with: an integer of Python's, and a scalar of the kernel's where it is
    converted. Arithmetic with other integers gives one again."""

    __add__, __radd__ = _counted("__add__"), _counted("__radd__")
    __sub__, __rsub__ = _counted("__sub__"), _counted("__rsub__")
    __mul__, __rmul__ = _counted("__mul__"), _counted("__rmul__")
    __floordiv__, __mod__ = _counted("__floordiv__"), _counted("__mod__")

    def to(self, dtype: Any, *rest: Any, **named: Any) -> Any:
        """The scalar in another type."""
        import triton.language as tl

        return tl.full((), int(self), tl.int32).to(dtype, *rest, **named)


def _cut(values: Any) -> Any:
    """float32 as the TF32 units read it: without its last 13 bits."""
    import numpy as np

    bits = np.ascontiguousarray(values).view(np.uint32) & np.uint32(0xFFFFE000)
    return bits.view(np.float32)

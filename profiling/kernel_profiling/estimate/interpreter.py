"""Triton's interpreter, mended where the versions supported here go wrong on honest kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from kernel_profiling.estimate.libdevice import mend_libdevice


def mend_interpreter() -> None:
    """Mend this process's interpreter; call after triton was imported, as often as you like.

    Ten gaps. A conversion from float32 to bfloat16 cuts digits off where a GPU rounds to nearest
    even (Triton 3.6 to 3.9). A loop bound given at run time is a one-element array, which recent
    numpy no longer turns into an index (3.6). `tl.dot` multiplies the bit patterns of bfloat16
    operands, because numpy has no such type and holds them as 16-bit integers (3.6 to 3.9). It
    multiplies float32 in full where it is asked for TF32, which is the default (3.6 to 3.9). A mask
    that a scalar took part in holds integers, which loads and stores refuse (3.9). A loop counts
    in Python's integers, which have no `to` (3.6 to 3.9). Operations on bfloat16 are computed on
    the bit patterns (3.6 to 3.9). There are no constants of bfloat16 (3.6). Whole numbers and other
    formats than float32 become bit patterns of bfloat16, and the other way round (3.6 to 3.9).
    Libdevice and dependent launches are missing (3.6 to 3.9).
    """
    import triton.language as tl
    from triton.runtime import interpreter

    if getattr(interpreter, "_mended", False):
        return
    interpreter._mended = True
    convert, patch_tensor = interpreter._convert_float, interpreter._patch_lang_tensor
    patch_language = interpreter._patch_lang

    def convert_float(data: Any, source: Any, target: Any, rounding: Any) -> Any:
        if rounding is None and source == tl.float32 and target == tl.bfloat16:
            return narrow(data)
        return convert(data, source, target, rounding)

    def patch_lang_tensor(tensor: Any, *scope: Any) -> None:
        patch_tensor(tensor, *scope)
        tensor.__index__ = lambda self: int(self.handle.data.item())

    def patch_lang(function: Any) -> Any:
        function.__globals__.setdefault("range", counting_range)
        return patch_language(function)

    interpreter._convert_float, interpreter._patch_lang_tensor = convert_float, patch_lang_tensor
    interpreter._patch_lang, interpreter.range = patch_lang, counting_range
    if not hasattr(interpreter.InterpreterBuilder, "get_bf16"):
        interpreter.InterpreterBuilder.get_bf16 = lambda self, value: self.create_fp_trunc(
            self.get_fp32(value), tl.bfloat16
        )
    mend_libdevice()
    _mend_memory_and_dot(interpreter)
    _mend_casts(interpreter)
    for name in ("binary_op", "unary_op", "ternary_op", "create_fma", "create_rsqrt", "create_erf"):
        _mend_operation(interpreter, name)
    _mend_reduction(interpreter.ReduceOps, "sum")
    _mend_reduction(interpreter.ReduceOps, "min_max")
    _mend_reduction(interpreter.ScanOps, "cumsum")
    _mend_reduction(interpreter.ScanOps, "cumprod")


def _mend_memory_and_dot(interpreter: Any) -> None:
    """Have masks of loads and stores be booleans, and operands of products numbers."""
    import triton.language as tl
    from triton._C.libtriton import ir

    builder, handle = interpreter.InterpreterBuilder, interpreter.TensorHandle
    load, store, dot = builder.create_masked_load, builder.create_masked_store, builder.create_dot

    def boolean(mask: Any) -> Any:
        # The mask of a tensor descriptor is an array, not a handle, and has its memory in `data`.
        data = np.asarray(mask.data)
        fits = type(mask) is handle and data.dtype == bool
        return mask if fits else handle(data.astype(bool), tl.int1)

    def operand(given: Any, precision: Any) -> Any:
        if given.dtype == tl.bfloat16:
            return handle(widen(given.data), tl.float32)
        if given.dtype == tl.float32 and precision == ir.INPUT_PRECISION.TF32:
            # TF32 units read float32 without its last 13 bits.
            bits = np.ascontiguousarray(given.data).view(np.uint32) & np.uint32(0xFFFFE000)
            return handle(bits.view(np.float32), tl.float32)
        return given

    builder.create_masked_load = lambda self, ptrs, mask, *rest, **named: load(
        self, ptrs, boolean(mask), *rest, **named
    )
    builder.create_masked_store = lambda self, ptrs, value, mask, *rest, **named: store(
        self, ptrs, value, boolean(mask), *rest, **named
    )
    builder.create_dot = lambda self, a, b, d, precision, *rest: dot(
        self, operand(a, precision), operand(b, precision), d, precision, *rest
    )


def _mend_casts(interpreter: Any) -> None:
    """Have casts between bfloat16 and what is not float32 go through that."""
    import triton.language as tl

    builder, handle = interpreter.InterpreterBuilder, interpreter.TensorHandle
    plain = builder.cast_impl

    def cast(self: Any, source: Any, target: Any) -> Any:
        old, new = source.dtype.scalar, target.scalar
        if tl.bfloat16 not in (old, new) or old == new:
            return plain(self, source, target)
        if old == tl.bfloat16:
            source = handle(widen(source.data), tl.float32)
            return source if new == tl.float32 else plain(self, source, target)
        if old != tl.float32:
            wide = tl.block_type(tl.float32, target.shape) if target.is_block() else tl.float32
            source = plain(self, source, wide)
        return handle(narrow(source.data), tl.bfloat16)

    builder.cast_impl = cast


def _mend_operation(interpreter: Any, name: str) -> None:
    """Have an operation on bfloat16 computed in float32 and rounded once, as a GPU does."""
    import triton.language as tl

    handle = interpreter.TensorHandle
    plain = getattr(interpreter.InterpreterBuilder, name, None)
    if plain is None:  # not in this version
        return

    bits = np.dtype(np.uint16)

    def is_narrow(value: Any) -> bool:
        return isinstance(value, handle) and value.dtype.scalar == tl.bfloat16

    def operate(self: Any, *operands: Any) -> Any:
        for item in operands:  # most operations see none, and are as fast as before
            if type(item) is handle and item.data.dtype == bits:
                break
        else:
            return plain(self, *operands)
        chooses = any(item is np.where for item in operands)
        if chooses or not any(map(is_narrow, operands)):
            return plain(self, *operands)
        wide = [handle(widen(x.data), tl.float32) if is_narrow(x) else x for x in operands]
        result = plain(self, *wide)
        if result.data.dtype != np.float32:  # a comparison
            return result
        return handle(narrow(result.data), tl.bfloat16)

    setattr(interpreter.InterpreterBuilder, name, operate)


def _mend_reduction(owner: Any, name: str) -> None:
    """Have a reduction or a scan of bfloat16 computed in float32."""
    import triton.language as tl

    plain = getattr(owner, name)

    def reduce(self: Any, value: Any, *rest: Any, **named: Any) -> Any:
        first = value[0] if isinstance(value, tuple) else value
        if first.dtype.scalar != tl.bfloat16:
            return plain(self, value, *rest, **named)
        found = plain(self, self.to_tensor(widen(first.handle.data), tl.float32), *rest, **named)

        def back(item: Any) -> Any:
            if item.dtype.scalar != tl.float32:  # an index
                return item
            data = narrow(item.handle.data)
            return self.to_tensor(data if item.type.is_block() else data.item(0), tl.bfloat16)

        return type(found)(map(back, found)) if isinstance(found, tuple | list) else back(found)

    setattr(owner, name, reduce)


def narrow(values: Any) -> Any:
    """float32 -> bfloat16 bit patterns (uint16), to nearest even; a NaN stays one."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    lost = np.isnan(values)
    if lost.any():
        rounded = np.where(lost, (bits >> np.uint32(16)) | np.uint32(0x40), rounded)
    return rounded.astype(np.uint16).reshape(np.shape(values))


def widen(bits: Any) -> Any:
    """bfloat16 bit patterns (uint16) -> float32, exactly."""
    if bits.dtype != np.uint16:
        return bits
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


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

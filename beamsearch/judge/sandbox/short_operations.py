"""The interpreter's commonest operations done without its checks of types, where nothing is to be
converted: index arithmetic, comparisons and masks are most of what an interpreted kernel does.

Results are those of the usual way bit by bit, but for a mask made of a scalar's and a block's: here
it is one, where Triton 3.6 to 3.9 makes whole numbers of it, which some operations then refuse."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import copysign, inf, isnan, prod
from typing import Any

import numpy as np


def _divide(one: Any, other: Any, order: Any = "K") -> Any:
    """Whole numbers divided towards zero, as a GPU does."""
    return np.floor_divide(one - np.fmod(one, other), other, order=order)


WHOLE: dict[str, Any] = {"int32": np.dtype(np.int32), "int64": np.dtype(np.int64)}
NUMBERS = WHOLE | {"fp32": np.dtype(np.float32)}
BITS = WHOLE | {"int1": np.dtype(bool)}
"""Triton's name of a type -> that of the array that holds its values."""
ARITHMETIC: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "__add__": (np.add, NUMBERS),
    "__radd__": (np.add, NUMBERS),
    "__sub__": (np.subtract, NUMBERS),
    "__mul__": (np.multiply, NUMBERS),
    "__rmul__": (np.multiply, NUMBERS),
    "__floordiv__": (_divide, WHOLE),
    "__mod__": (np.fmod, WHOLE),
    "__and__": (np.bitwise_and, BITS),
    "__or__": (np.bitwise_or, BITS),
}
"""Method of a tensor -> what is done, and to values of which types. The reversed ones are of
operations that commute."""
COMPARISONS = {
    "__lt__": np.less,
    "__le__": np.less_equal,
    "__gt__": np.greater,
    "__ge__": np.greater_equal,
    "__eq__": np.equal,
    "__ne__": np.not_equal,
}
OPERATIONS = ARITHMETIC | {name: (compare, NUMBERS) for name, compare in COMPARISONS.items()}
BOUNDS = {"int32": 1 << 31, "int64": 1 << 63, "fp32": 1 << 53}
"""Type -> whole numbers below it that are rounded at most once on the way to that type."""
FLOAT32 = np.finfo(np.float32)


@dataclass
class _Shortcuts:
    """What the short forms of all operations share."""

    semantic: Any
    tensor: Any
    """Triton's class of a value in a kernel."""
    handle: Any
    """The interpreter's class of what holds one."""
    count: Callable[[int], None]
    """Count a value of so many elements that the long form makes: work is counted where a handle
    is made, whoever counts."""
    twice: bool = False
    """Whether a number becomes a tensor of its own type, and one of the other's then, as before
    Triton 3.9: always, but for comparisons, where it may be that already."""
    constants: dict[tuple[int | float, float, str], Any] = field(default_factory=dict)
    booleans: dict[str, Any] = field(default_factory=dict)
    """Type -> that of a comparison of two such."""
    shapes: dict[Any, tuple[int, ...] | None] = field(default_factory=dict)
    """Two shapes -> that of a result; none where they do not fit."""

    def made(self, data: Any, dtype: Any) -> Any:
        """A handle of an array that is known to fit the type."""
        self.count(data.size)
        handle = object.__new__(self.handle)
        handle.__dict__.update(data=data, dtype=dtype, attr={})
        return handle

    def constant(self, value: object, dtype: Any) -> Any:
        """The handle of a number beside a tensor of this dtype; none where that is converted."""
        if type(value) is int:
            bound = BOUNDS.get(dtype.name, 0)
            if not -bound <= value < bound:
                return None
        elif type(value) is not float or dtype.name != "fp32" or isnan(value):
            return None
        key = (value, copysign(1, value), dtype.name)
        known = self.constants.get(key)
        if known is None:
            known = self.constants[key] = self.semantic.scalar_constant(value, dtype).handle
        else:
            self.count(1)
        return known

    def boolean(self, kind: Any) -> Any:
        """The type of a comparison of two values of this type."""
        known = self.booleans.get(kind.name)
        if known is None:
            import triton.language as tl

            known = kind.with_element_ty(tl.int1) if kind.is_block() else tl.int1
            self.booleans[kind.name] = known
        return known

    def common(self, one: Any, other: Any) -> Any:
        """The type of a result, with the first one's elements; none for shapes that do not fit."""
        a, b = one.type.is_block(), other.type.is_block()
        if a and b:
            return self.spread(one, other)
        if a or b:
            self.count((one if a else other).handle.data.size)
        return other.type.with_element_ty(one.dtype) if b else one.type

    def spread(self, one: Any, other: Any) -> Any:
        """The same for two blocks."""
        shapes = one.handle.data.shape, other.handle.data.shape
        if shapes[0] == shapes[1]:
            return one.type
        if shapes not in self.shapes:
            fit = len(shapes[0]) == len(shapes[1])
            fit &= all(a == b or 1 in (a, b) for a, b in zip(*shapes, strict=False))
            self.shapes[shapes] = np.broadcast_shapes(*shapes) if fit else None
        whole = self.shapes[shapes]
        if whole is None:
            return None
        import triton.language as tl

        for shape in shapes:
            if shape != whole:
                self.count(prod(whole))
        return tl.block_type(one.dtype, list(whole))


def shorten_operations(count: Callable[[int], None]) -> None:
    """Have each of these done in one step for operands of one type or int32 and int64, for a block
    and a scalar or a number, and for a pointer and an offset. Everything else goes the
    interpreter's own way."""
    import triton.language as tl
    from triton.runtime import interpreter

    semantic = interpreter.TritonSemantic(interpreter.interpreter_builder)
    shared = _Shortcuts(semantic, tl.tensor, interpreter.TensorHandle, count)
    shared.twice = not hasattr(semantic, "_cast_to_computation_type")
    patch = interpreter._patch_attr

    def patched(target: Any, name: str, *rest: Any) -> None:
        patch(target, name, *rest)
        if target is tl.tensor and name in OPERATIONS:
            setattr(target, name, _shortened(name, getattr(target, name), shared))

    interpreter._patch_attr = patched


def _shortened(name: str, usual: Callable[..., Any], shared: _Shortcuts) -> Callable[..., Any]:
    """An operation in its short form where that applies, in the usual one elsewhere."""
    import triton.language as tl

    tensor, move = shared.tensor, shared.semantic.builder.create_addptr
    operation, arrays = OPERATIONS[name]
    short = _Short(operation, name in COMPARISONS, shared)

    def operate(self: Any, other: Any, **named: Any) -> Any:
        value = other.value if type(other) is tl.constexpr else other
        found = None
        if self.handle.data.dtype is arrays.get(self.dtype.name):
            with_tensor = type(value) is tensor
            found = (
                short.with_tensor(self, value) if with_tensor else short.with_number(self, value)
            )
        elif name == "__add__" and self.dtype.is_ptr() and type(value) is tensor:
            kind = shared.common(self, value) if value.dtype.name in WHOLE else None
            found = None if kind is None else tensor(move(self.handle, value.handle), kind)
        return usual(self, other, **named) if found is None else found

    return operate


@dataclass
class _Short:
    """The short form of one operation, of values that arrays of the right type hold; none where it
    does not apply."""

    operation: Callable[..., Any]
    compares: bool
    shared: _Shortcuts

    def with_number(self, one: Any, number: Any) -> Any:
        """Of a tensor and a number."""
        shared, dtype = self.shared, one.dtype
        is_typed = shared.twice and self.compares and type(number) in (int, float)
        own = _own_type(number) if is_typed else ""
        constant = None if own == "fp64" else shared.constant(number, dtype)  # both become that
        if constant is None:
            return None
        if shared.twice and own != dtype.name:
            shared.count(1)
        if one.type.is_block():
            shared.count(one.handle.data.size)
        return self.result(one.handle.data, constant.data, dtype, one.type, "C")

    def with_tensor(self, one: Any, other: Any) -> Any:
        """Of two tensors."""
        shared, first, second = self.shared, one.handle.data, other.handle.data
        names, dtype = (one.dtype.name, other.dtype.name), one.dtype
        # A scalar is spread over a block in C order, whatever the block's is.
        order = "K" if one.type.is_block() == other.type.is_block() else "C"
        if names[0] == names[1] and first.dtype is second.dtype:
            kind = shared.common(one, other)
        elif WHOLE.keys() == set(names) and second.dtype is WHOLE[names[1]]:
            wide, narrow = (one, other) if names[0] == "int64" else (other, one)
            kind, dtype = shared.common(wide, narrow), wide.dtype
            if kind is not None:
                shared.count(narrow.handle.data.size)
                first = first.astype(np.int64, copy=False)
                second = second.astype(np.int64, copy=False)
        else:
            return None
        return None if kind is None else self.result(first, second, dtype, kind, order)

    def result(self, one: Any, other: Any, dtype: Any, kind: Any, order: str) -> Any:
        """What comes of two arrays."""
        found = self.shared.made(self.operation(one, other, order=order), dtype)
        return self.shared.tensor(found, self.shared.boolean(kind) if self.compares else kind)


def _own_type(number: float) -> str:
    """Triton's type of a number by itself, before version 3.9."""
    if type(number) is float:
        fits = number in (0, inf, -inf) or FLOAT32.tiny <= abs(number) <= FLOAT32.max
        return "fp32" if fits else "fp64"
    if 1 << 31 <= number < 1 << 32:
        return "uint32"
    return "int32" if -BOUNDS["int32"] <= number < BOUNDS["int32"] else "int64"

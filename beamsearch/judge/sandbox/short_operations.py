"""The interpreter's commonest operations done without its checks of types, where nothing is to be
converted: index arithmetic, comparisons and masks are most of what an interpreted kernel does."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import copysign, isnan
from typing import Any

OPERATIONS = {
    "__add__": ("create_add", "create_fadd"),
    "__radd__": ("create_add", "create_fadd"),
    "__sub__": ("create_sub", "create_fsub"),
    "__mul__": ("create_mul", "create_fmul"),
    "__rmul__": ("create_mul", "create_fmul"),
    "__floordiv__": ("create_sdiv", ""),
    "__mod__": ("create_srem", ""),
    "__and__": ("create_and", ""),
    "__or__": ("create_or", ""),
}
COMPARISONS = {
    "__lt__": ("create_icmpSLT", "create_fcmpOLT"),
    "__le__": ("create_icmpSLE", "create_fcmpOLE"),
    "__gt__": ("create_icmpSGT", "create_fcmpOGT"),
    "__ge__": ("create_icmpSGE", "create_fcmpOGE"),
    "__eq__": ("create_icmpEQ", "create_fcmpOEQ"),
    "__ne__": ("create_icmpNE", "create_fcmpUNE"),
}
"""Method of a tensor -> what the interpreter's builder does for signed integers, and for float32.
The reversed ones are of operations that commute."""
INTEGERS = {"int32": 1 << 31, "int64": 1 << 63}
"""Dtype -> a bound of its values."""


@dataclass
class _Shortcuts:
    """What the short forms of all operations share."""

    semantic: Any
    handle: Any
    """The interpreter's class of what holds a value."""
    constants: dict[tuple[int | float, float, str], Any] = field(default_factory=dict)
    booleans: dict[str, Any] = field(default_factory=dict)
    """Type -> that of a comparison of two such."""

    def count(self, value: Any) -> None:
        """Count a value as large as this one, which the long form makes and the short one does not:
        work is counted where a handle is made, whoever counts."""
        self.handle.__post_init__(value)

    def constant(self, value: object, dtype: Any) -> Any:
        """The handle of a number beside a tensor of this dtype; none where that is converted."""
        if type(value) is int:
            bound = INTEGERS.get(dtype.name)
            if dtype.name == "int1" or (bound is not None and not -bound <= value < bound):
                return None
        elif type(value) is not float or dtype.name != "fp32" or isnan(value):
            return None
        key = (value, copysign(1, value), dtype.name)
        known = self.constants.get(key)
        if known is None:
            known = self.constants[key] = self.semantic.scalar_constant(value, dtype).handle
        else:
            self.count(known)
        return known

    def boolean(self, kind: Any) -> Any:
        """The type of a comparison of two values of this type."""
        known = self.booleans.get(kind.name)
        if known is None:
            import triton.language as tl

            known = kind.with_element_ty(tl.int1) if kind.is_block() else tl.int1
            self.booleans[kind.name] = known
        return known


def shorten_operations() -> None:
    """Have each of these done in one step for operands of one type, for a block and a scalar or
    a number, and for a pointer and an offset. Everything else goes the interpreter's own way."""
    import triton.language as tl
    from triton.runtime import interpreter

    semantic = interpreter.TritonSemantic(interpreter.interpreter_builder)
    shared = _Shortcuts(semantic, interpreter.TensorHandle)
    patch = interpreter._patch_attr

    def patched(target: Any, name: str, *rest: Any) -> None:
        patch(target, name, *rest)
        if target is tl.tensor and (name in OPERATIONS or name in COMPARISONS):
            setattr(target, name, _shortened(name, getattr(target, name), shared))

    interpreter._patch_attr = patched


def _shortened(name: str, usual: Callable[..., Any], shared: _Shortcuts) -> Callable[..., Any]:
    """An operation in its short form where that applies, in the usual one elsewhere."""
    import triton.language as tl

    tensor, builder = tl.tensor, shared.semantic.builder
    compares = name in COMPARISONS
    of_integers, of_floats = COMPARISONS[name] if compares else OPERATIONS[name]
    # Before Triton 3.9 a number becomes a tensor of its own type, and one of the other's then:
    # always, but for comparisons, where it may be that already.
    twice = not hasattr(shared.semantic, "_cast_to_computation_type")
    by_dtype = dict.fromkeys(INTEGERS, getattr(builder, of_integers))
    if of_floats:
        by_dtype["fp32"] = getattr(builder, of_floats)
    if name in ("__and__", "__or__"):
        by_dtype["int1"] = by_dtype["int32"]

    def prepared(self: Any, other: Any) -> tuple[Any, Any, Any]:
        """What to do, the other operand's handle, and the type of the result; none where the short
        form does not apply."""
        dtype = self.dtype
        operation = by_dtype.get(dtype.name)
        if type(other) is not tensor:
            number = None if operation is None else shared.constant(other, dtype)
            if number is not None and twice and not (compares and _own_type(other) == dtype.name):
                shared.count(number)
            if number is not None and self.type.is_block():
                shared.count(self.handle)
            return (None if number is None else operation), number, self.type
        if operation is None or dtype.name != other.dtype.name:
            moves = name == "__add__" and dtype.is_ptr() and other.dtype.name in INTEGERS
            operation = builder.create_addptr if moves else None
        kind = None if operation is None else _common(self, other, shared)
        return (None if kind is None else operation), other.handle, kind

    def operate(self: Any, other: Any, **named: Any) -> Any:
        value = other.value if type(other) is tl.constexpr else other
        operation, operand, kind = prepared(self, value)
        if operation is None:
            return usual(self, other, **named)
        found = operation(self.handle, operand)
        return tensor(found, shared.boolean(kind) if compares else kind)

    return operate


def _own_type(number: float) -> str:
    """Triton's type of a number by itself."""
    small = -INTEGERS["int32"] <= number < INTEGERS["int32"]
    return "fp32" if type(number) is float else "int32" if small else "int64"


def _common(one: Any, other: Any, shared: _Shortcuts) -> Any:
    """The type of a result, with the first one's elements; none for blocks of two shapes."""
    a, b = one.type.is_block(), other.type.is_block()
    if a and b:
        return one.type if one.handle.data.shape == other.handle.data.shape else None
    if a or b:
        shared.count((one if a else other).handle)
    return other.type.with_element_ty(one.dtype) if b else one.type

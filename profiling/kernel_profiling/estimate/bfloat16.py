"""bfloat16 in Triton's interpreter: numpy has no such type, and its bit patterns are no numbers."""

from __future__ import annotations

from typing import Any

OPERATIONS = (
    *("binary_op", "unary_op", "ternary_op"),
    *("create_fma", "create_rsqrt", "create_erf"),
)
"""Of the interpreter's builder, those that compute."""


def narrow(values: Any) -> Any:
    """float32 -> bfloat16 bit patterns (uint16), to nearest even; a NaN stays one."""
    import numpy as np

    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    quiet = (bits >> np.uint32(16)) | np.uint32(0x40)
    return np.where(np.isnan(values), quiet, rounded).astype(np.uint16).reshape(np.shape(values))


def widen(bits: Any) -> Any:
    """bfloat16 bit patterns (uint16) -> float32, exactly."""
    import numpy as np

    if bits.dtype != np.uint16:
        return bits
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def mend_arithmetic(interpreter: Any) -> None:
    """Have operations on bfloat16 computed in float32 and rounded once, as a GPU does; the
    interpreter computes on the bit patterns (Triton 3.6 to 3.9)."""
    for name in OPERATIONS:
        _mend_operation(interpreter, name)
    for owner, reductions in (
        (interpreter.ReduceOps, ("sum", "min_max")),
        (interpreter.ScanOps, ("cumsum", "cumprod")),
    ):
        for name in reductions:
            _mend_reduction(owner, name)


def _mend_operation(interpreter: Any, name: str) -> None:
    import numpy as np
    import triton.language as tl

    handle = interpreter.TensorHandle
    plain = getattr(interpreter.InterpreterBuilder, name, None)
    if plain is None:  # not in this version
        return

    def is_narrow(value: Any) -> bool:
        return isinstance(value, handle) and value.dtype.scalar == tl.bfloat16

    def operate(self: Any, *operands: Any) -> Any:
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
    """Have a reduction or a scan of bfloat16 add up in float32."""
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

        if isinstance(found, tuple | list):
            return type(found)(map(back, found))
        return back(found)

    setattr(owner, name, reduce)

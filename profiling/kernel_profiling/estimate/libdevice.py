"""CUDA's functions outside of Triton's language, for its interpreter, which has none of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

WAITS = ("gdc_wait", "gdc_launch_dependents")
"""What orders a launch with the next one; the interpreter runs one after the other."""


def _each(function: Callable[[float], float]) -> Callable[[Any], Any]:
    return np.vectorize(function, otypes=[np.float64])


def _half_away(x: Any) -> Any:
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": np.abs,
    **{name: getattr(np, name) for name in ("floor", "ceil", "trunc", "exp", "exp2", "expm1")},
    **{name: getattr(np, name) for name in ("log", "log2", "log10", "log1p", "sqrt", "rint")},
    **{name: getattr(np, name) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "cbrt")},
    **{name: getattr(np, f"arc{name[1:]}") for name in ("asin", "acos", "atan", "atan2")},
    **{name: getattr(np, f"arc{name[1:]}") for name in ("asinh", "acosh", "atanh")},
    **{name: getattr(np, name) for name in ("fmod", "hypot", "copysign", "nextafter", "signbit")},
    **{name: getattr(np, name) for name in ("isnan", "isinf")},
    **dict.fromkeys(("finitef", "isfinited"), np.isfinite),
    "nearbyint": np.rint,
    "round": _half_away,
    "pow": np.power,
    "remainder": lambda x, y: x - y * np.rint(x / y),
    "fdim": lambda x, y: np.maximum(x - y, 0),
    "saturatef": lambda x: np.clip(np.nan_to_num(x, nan=0.0), 0, 1),
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "rcbrt": lambda x: 1 / np.cbrt(x),
    "exp10": lambda x: np.power(np.asarray(10, x.dtype), x),
    "sinpi": lambda x: np.sin(np.pi * np.fmod(x, 2)),
    "cospi": lambda x: np.cos(np.pi * np.fmod(x, 2)),
    "erf": _each(math.erf),
    "erfc": _each(math.erfc),
    "normcdf": lambda x: _each(math.erfc)(-x / math.sqrt(2)) / 2,
    "lgamma": _each(lambda x: math.lgamma(x) if math.isfinite(x) else abs(x)),
    "fma": lambda x, y, z: np.multiply(x, y, dtype=np.longdouble) + z,
    "fast_dividef": np.divide,
    "add_rn": np.add,
    "sub_rn": np.subtract,
    "mul_rn": np.multiply,
    "div_rn": np.divide,
    "rcp_rn": np.reciprocal,
}
"""Name -> the function of numpy arrays. The fast and the rounded forms below are as exact here."""
FUNCTIONS |= {
    f"fast_{name}f": FUNCTIONS[name]
    for name in ("sin", "cos", "tan", "tanh", "exp", "exp10", "log", "log2", "log10", "pow")
}
FUNCTIONS |= {f"{name}_rn": FUNCTIONS[name] for name in ("fma", "sqrt", "rsqrt")}


def mend_libdevice() -> None:
    """Give the interpreter libdevice's functions of floating-point numbers, and the waits of
    dependent launches, which do nothing there. Without them Triton 3.6 to 3.9 return None for the
    former and refuse the latter."""
    import triton.language as tl
    from triton.language.extra import libdevice

    for module in (libdevice, tl.extra.cuda.libdevice):
        for name, function in FUNCTIONS.items():
            if hasattr(module, name):
                setattr(module, name, _interpreted(name, function))
    for name in WAITS:
        setattr(tl.extra.cuda, name, lambda _semantic=None: None)


def _interpreted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*given: Any, _semantic: Any = None) -> Any:
        import triton.language as tl
        from triton.runtime import interpreter

        values = [interpreter.interpreter_semantic.to_tensor(value) for value in given]
        kinds = {value.dtype for value in values}
        if len(kinds) > 1 or not kinds <= {tl.float32, tl.float64}:
            told = ", ".join(str(value.dtype) for value in values)
            raise ValueError(f"libdevice.{name} takes float32 or float64, all alike, not {told}")
        (kind,) = kinds
        with np.errstate(all="ignore"):
            found = np.asarray(function(*(value.handle.data for value in values)))
        if found.dtype == bool:
            kind = tl.int32
        data = found.astype(interpreter._get_np_dtype(kind))
        blocks = [value.type for value in values if value.type.is_block()]
        made = interpreter.TensorHandle(data, kind)
        return tl.tensor(made, tl.block_type(kind, list(data.shape)) if blocks else kind)

    call.__name__ = name
    return call

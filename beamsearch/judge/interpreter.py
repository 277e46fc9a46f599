"""Triton's interpreter, fit for judging: mended and three times as fast."""

from __future__ import annotations

import functools
from typing import Any


def prepare_interpreter() -> None:
    """Mend and speed up this process's interpreter, before any candidate is imported.

    Integer overflow is not checked, as on a GPU; that check is most of what the interpreter does.
    An autotuner takes its first configuration: no two can be timed here.
    """
    import triton.language as tl
    from triton.runtime import interpreter
    from triton.runtime.autotuner import Autotuner

    from profiling.interpreter import mend_interpreter

    mend_interpreter()
    interpreter.interpreter_builder.options = interpreter.InterpreterOptions(
        sanitize_overflow=False
    )
    slow = interpreter._get_np_dtype
    by_dtype = functools.cache(slow)
    interpreter._get_np_dtype = lambda dtype: (
        by_dtype(dtype) if type(dtype) is tl.dtype else slow(dtype)  # other types have no hash
    )
    _remember_shapes()
    Autotuner._bench = lambda self, *args, config, **kwargs: [float(self.configs.index(config))]


def _remember_shapes() -> None:
    """Have each shape of a block worked out once, not anew for every value that has it.

    Triton wraps and checks every dimension whenever it makes a value or a type, which is half of
    what an interpreted kernel does. What was worked out is copied; nothing changes it afterwards.
    """
    import triton.language as tl

    new_type, new_value = tl.block_type.__init__, tl.tensor.__init__
    types: dict[Any, dict[str, Any]] = {}
    values: dict[str, dict[str, Any]] = {}

    def init_type(self: Any, element_ty: Any, shape: Any) -> None:
        try:
            key = (element_ty.name, *(getattr(size, "value", size) for size in shape))
            known = types.get(key)
        except TypeError:  # not a shape: Triton has words for it
            new_type(self, element_ty, shape)
            return
        if known is None:
            new_type(self, element_ty, shape)
            types[key] = dict(vars(self))
        else:
            self.__dict__.update(known, element_ty=element_ty)

    def init_value(self: Any, handle: Any, type: Any) -> None:
        known = values.get(type.name)
        if known is None:
            new_value(self, handle, type)
            own = ("handle", "type")
            values[type.name] = {k: v for k, v in vars(self).items() if k not in own}
        else:
            self.__dict__.update(known, handle=handle, type=type)

    tl.block_type.__init__ = init_type
    tl.tensor.__init__ = init_value

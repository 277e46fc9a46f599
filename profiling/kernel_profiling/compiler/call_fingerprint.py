"""What a call does to the GPU, in order, so that two calls which do the same are seen to be one."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

ALLOCATES = frozenset(
    {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "detach"}
)
"""Torch operations that leave no mark of their own: what they give is told where it is used."""


class Deeds:
    """The launches and torch operations of one or more calls, each with all it was given.

    Tensors are told by their memory, in the order in which that was first met, with shape, strides,
    dtype and offset. Views and allocations are left out, for they do nothing on the GPU.
    """

    def __init__(self) -> None:
        self._memory: dict[int, int] = {}
        self._kept: list[Any] = []
        self._deeds: list[str] = []

    def tell(self, value: Any) -> str:
        """A value in words that are the same whenever it is."""
        if hasattr(value, "data_ptr") and hasattr(value, "untyped_storage"):
            memory = value.untyped_storage()
            key = memory._cdata
            if key not in self._memory:
                self._memory[key] = len(self._memory)
                self._kept.append(memory)  # or another tensor's could get its address
            return (
                f"tensor{self._memory[key]}{tuple(value.shape)}{tuple(value.stride())}{value.dtype}"
                f"+{value.storage_offset()}"
            )
        if isinstance(value, list | tuple):
            return f"[{', '.join(map(self.tell, value))}]"
        return repr(value) if isinstance(value, int | float | bool | str | None) else str(value)

    def launch(self, words: Sequence[str]) -> None:
        """Note a launch: code, grid, arguments."""
        self._deeds.append("\n".join(words))

    def operation(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Note a torch operation, unless it does nothing on the GPU."""
        name = func.overloadpacket.__name__
        if name in ALLOCATES or _is_view(func):
            return
        named = [f"{key}={self.tell(value)}" for key, value in sorted(kwargs.items())]
        given = ", ".join([self.tell(list(args)), *named])
        self._deeds.append(f"{func}({given}) -> {self.tell(result)}")

    def end(self, result: Any) -> None:
        """Note that a call ended, and what it returned."""
        self._deeds.append(f"returns {self.tell(result)}")

    @property
    def fingerprint(self) -> str:
        """One hash over everything noted."""
        return hashlib.sha256("\n\n".join(self._deeds).encode()).hexdigest()


def _is_view(func: Any) -> bool:
    """Whether an operation only looks at its input's memory in another way."""
    marks = [value.alias_info for value in func._schema.returns]
    return bool(marks) and all(mark is not None and not mark.is_write for mark in marks)

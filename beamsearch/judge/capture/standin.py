"""Tensors that look like a GPU's and have no memory behind them, for host code to work on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode
from torch.utils._pytree import tree_map

from beamsearch.records.plan import Role

DEVICE = torch.device("cuda", 0)


@dataclass(eq=False)
class Memory:
    """One allocation."""

    size: int
    """In bytes."""
    address: int
    role: Role
    call: int
    """Number of the call in which it was made; 0 while the kernel was imported."""
    given: int | None = None
    weight: bool = False
    """Whether it holds a parameter or buffer of the model."""
    data: bytes | None = None
    """What a constant holds; of other memory what it held before the first launch that had it,
    where that follows from constants alone."""
    shadow: Any = None
    """Its bytes on the host, as long as they follow from constants alone."""
    computed: bool = False
    """Whether more than fills made them."""
    storage: Any = None
    """The storage on `meta` by which its views are known."""


class StandIn(torch.Tensor):
    """A tensor on a GPU that is not there. What is done with it goes to the recorder."""

    meta: torch.Tensor
    memory: Memory

    @staticmethod
    def __new__(cls, meta: torch.Tensor, memory: Memory) -> StandIn:
        made: Any = torch.Tensor._make_wrapper_subclass(
            cls,
            meta.size(),
            strides=meta.stride(),
            storage_offset=meta.storage_offset(),
            dtype=meta.dtype,
            device=DEVICE,
        )
        made.meta, made.memory = meta, memory
        return made  # type: ignore[no-any-return]

    def data_ptr(self) -> int:
        """An address, as good as any."""
        return self.memory.address + int(self.meta.storage_offset()) * self.meta.element_size()

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"tensor(…, size={tuple(self.shape)}, dtype={self.dtype}, device='cuda:0')"

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # These ask C++ for the device's guard, which only a build for CUDA has.
        if func is torch.Tensor.__getitem__:
            return _index(*args)
        if func is torch.Tensor.__setitem__:
            view, value = _index(*args[:2]), args[2]
            (view.copy_ if isinstance(value, torch.Tensor) else view.fill_)(value)
            return None
        recorder: Any = _get_current_dispatch_mode()
        if func is torch.Tensor.copy_ and recorder is not None:
            return recorder.__torch_dispatch__(torch.ops.aten.copy_.default, (), args, {})
        if func is torch.Tensor.contiguous:
            return _contiguous(*args, **(kwargs or {}))
        if func in _HOST_READS:
            return torch.ops.aten._local_scalar_dense.default(args[0])
        return super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[no-untyped-call]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        raise RuntimeError(f"{func} on a stand-in outside a capture")


def _index(tensor: StandIn, index: Any) -> Any:
    parts = list(index) if isinstance(index, tuple) else [index]
    if any(map(_holds_tensor, parts)):
        return torch.ops.aten.index.Tensor(tensor, parts)
    view = tensor.meta[index]
    return torch.ops.aten.as_strided.default(
        tensor, list(view.shape), list(view.stride()), view.storage_offset()
    )


def _contiguous(
    tensor: StandIn, memory_format: torch.memory_format = torch.contiguous_format
) -> Any:
    if tensor.meta.is_contiguous(memory_format=memory_format):
        return tensor
    return tensor.clone(memory_format=memory_format)


_HOST_READS = {
    torch.nonzero,
    torch.masked_select,
    *(
        getattr(torch.Tensor, name)
        for name in (
            *("item", "tolist", "numpy", "__bool__", "__int__", "__float__", "__index__"),
            *("nonzero", "masked_select"),
        )
    ),
}


def _holds_tensor(index: Any) -> bool:
    if isinstance(index, tuple | list):
        return any(map(_holds_tensor, index))
    return isinstance(index, torch.Tensor)


def stand_ins(value: Any) -> Iterator[StandIn]:
    """All stand-ins in a value: in lists, tuples and dictionaries, and under tensor descriptors."""
    if isinstance(value, StandIn):
        yield value
    elif isinstance(value, list | tuple | dict):
        for item in value.values() if isinstance(value, dict) else value:
            yield from stand_ins(item)
    elif isinstance(base := getattr(value, "base", None), StandIn):
        yield base


def as_meta(value: Any) -> Any:
    """Arguments of an operation as `meta` takes them."""

    def one(item: Any) -> Any:
        if isinstance(item, StandIn):
            return item.meta
        if isinstance(item, torch.device):
            return torch.device("meta")
        if isinstance(item, torch.Tensor) and item.device.type == "cpu" and item.dim():
            return item.to("meta")
        return item

    return tree_map(one, value)

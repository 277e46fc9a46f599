"""Tensors that look like a GPU's and have no memory behind them, for host code to work on."""

from __future__ import annotations

import secrets
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode
from torch.utils._pytree import tree_map

from beamsearch.records.plan import Role

DEVICE = torch.device("cuda", 0)
ALIGNMENT = 256
"""What divides every address, as with PyTorch's own allocator on a GPU (which gives 512)."""


@dataclass(eq=False)
class Memory:
    """One allocation."""

    size: int
    """In bytes."""
    address: int
    role: Role
    call: int
    """Number of the call in which it was made; 0 while the kernel was imported."""
    born: int
    """Steps of that call before it was made."""
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
    alive: int = 0
    """Tensors on it that Python still holds."""
    dead: int | None = None
    """Steps of its call before the last of them went."""
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


@dataclass
class Memories:
    """All allocations of one process, by their storage."""

    known: dict[int, Memory] = field(default_factory=dict)
    now: Callable[[], tuple[int, int]] = lambda: (0, 0)
    """The call at hand, and how many steps it has."""
    _next: int = 0x7F0000000000

    def wrap(self, meta: torch.Tensor, role: Role = "made", given: int | None = None) -> StandIn:
        """A stand-in for a tensor on `meta`: on the memory that it is a view of, or on new."""
        storage = meta.untyped_storage()
        memory = self.known.get(storage._cdata)
        if memory is None:
            call, step = self.now()
            size = storage.nbytes()
            memory = Memory(size, self._place(size), role, call, step, given, storage=storage)
            self.known[storage._cdata] = memory
        tensor = StandIn(meta, memory)
        memory.alive += 1
        weakref.finalize(tensor, self._went, memory)
        return tensor

    def _went(self, memory: Memory) -> None:
        memory.alive -= 1
        if memory.alive == 0 and memory.call == self.now()[0]:
            memory.dead = self.now()[1]

    def _place(self, size: int) -> int:
        """An address of its own, that nobody can tell ahead."""
        address = self._next + ALIGNMENT * (1 + secrets.randbelow(4095))
        self._next = -(-(address + size) // ALIGNMENT) * ALIGNMENT
        return address

    def hold(self, address: int) -> bool:
        """Whether an address lies in any of them."""
        return any(0 <= address - m.address < max(1, m.size) for m in self.known.values())


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

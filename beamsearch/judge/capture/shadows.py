"""What memory holds that was made from shapes and constants alone: tables of indices or angles.

It is worked out on the host beside the recording, until a launch has the memory. What a kernel
keeps of this kind is a constant, and need not be made again in each call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_map

from beamsearch.judge.capture.standin import Memory, StandIn, stand_ins
from beamsearch.records.plan import MOST_CONSTANT_BYTES

OVERWRITES = frozenset(("fill_", "zero_", "copy_"))
FILLS = {
    **dict.fromkeys(("zero_", "zeros", "zeros_like", "new_zeros"), 0),
    **dict.fromkeys(("ones", "ones_like", "new_ones"), 1),
}
"""Operations that set every element to one value. They take no bytes in a plan."""
FULL = {"fill_": 1, "full": 1, "full_like": 1, "new_full": 2}
"""The same, by the place of the value among their arguments."""


def follow(func: Any, args: Sequence[Any], kwargs: dict[str, Any], targets: list[StandIn]) -> None:
    """Do on the host what an operation does, where all that it reads is known there."""
    name = func.overloadpacket.__name__
    read = list(stand_ins([args, kwargs]))
    if name in OVERWRITES and targets[0].meta.nbytes == targets[0].memory.size:
        read = read[1:]
    small = all(target.memory.size <= MOST_CONSTANT_BYTES for target in targets)
    known = all(t.memory.shadow is not None or t.memory.size == 0 for t in read)
    if not small or not known:
        for target in targets:
            target.memory.shadow = None
        return
    for target in targets:
        if target.memory.shadow is None:
            target.memory.shadow = torch.zeros(target.memory.size, dtype=torch.uint8)
        target.memory.computed |= name not in FILLS and name not in FULL
    result = func(*tree_map(_on_host, list(args)), **tree_map(_on_host, kwargs))
    if func._schema.is_mutable:
        return  # it was done in place
    results = list(result) if isinstance(result, tuple | list) else [result]
    for target, value in zip(targets, results, strict=True):
        _on_host(target).copy_(value)


def taken(memories: Sequence[Memory]) -> None:
    """A launch has these: what they held first is kept, what they hold from now on is unknown."""
    for memory in memories:
        if memory.role == "made":
            memory.data = content(memory)
            memory.shadow = None


def content(memory: Memory) -> bytes | None:
    """What memory held before any launch had it, where operations made that from constants."""
    if memory.data is None and memory.computed and memory.shadow is not None:
        return bytes(memory.shadow.numpy())
    return memory.data


def _on_host(value: Any) -> Any:
    if isinstance(value, torch.device):
        return torch.device("cpu")
    if not isinstance(value, StandIn):
        return value
    meta, shadow = value.meta, value.memory.shadow
    if shadow is None or not shadow.numel():
        return torch.empty(tuple(meta.shape), dtype=meta.dtype)
    whole = shadow[: shadow.numel() // meta.element_size() * meta.element_size()].view(meta.dtype)
    return whole.as_strided(meta.shape, meta.stride(), meta.storage_offset())

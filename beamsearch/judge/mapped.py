"""The judge's memory as another process has it: mapped once, found by its number."""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from typing import Any

import torch

from beamsearch.judge.driver import Mapping, open_descriptor


class MappedMemory:
    """What the judge handed over to this process."""

    def __init__(self) -> None:
        self._storages: dict[int, torch.UntypedStorage] = {}
        self._mappings: dict[int, Mapping] = {}

    def map(
        self, places: Sequence[dict[str, Any]], descriptors: Sequence[int], device: str
    ) -> None:
        """Map memory whose descriptors came along, and close them."""
        for place, descriptor in zip(places, descriptors, strict=True):
            if place["memory"] == "driver":
                index = torch.device(device).index
                mapping = open_descriptor(descriptor, place["bytes"], index)
                self._mappings[place["id"]] = mapping
                self._storages[place["id"]] = mapping.tensor().untyped_storage()
            else:
                path = f"/proc/self/fd/{descriptor}"
                mapped: Any = torch.UntypedStorage.from_file(path, True, place["bytes"])
                self._storages[place["id"]] = mapped
            os.close(descriptor)

    def storage(self, place: dict[str, Any]) -> torch.UntypedStorage:
        """A storage of the judge's; memory with a CUDA IPC handle is mapped when first wanted."""
        key = place["id"]
        if key not in self._storages:
            handle = [
                base64.b64decode(x["b64"]) if isinstance(x, dict) else x for x in place["handle"]
            ]
            opened: Any = torch.UntypedStorage._new_shared_cuda(*handle)
            self._storages[key] = opened
        return self._storages[key]

    def addresses(self) -> set[int]:
        """Where the storages begin."""
        return {storage.data_ptr() for storage in self._storages.values()}

    def unmap(self, keys: Sequence[int]) -> None:
        """Give memory back; nothing here may use it any more."""
        for key in keys:
            self._storages.pop(key, None)
            mapping = self._mappings.pop(key, None)
            if mapping is not None:
                mapping.close()

"""The judge's memory as another process has it: mapped once, found by its number."""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from typing import Any

import torch

from beamsearch.gpu.driver import open_descriptor
from beamsearch.judge.sandbox.protocol import open_tensor


class MappedMemory:
    """What the judge handed over to this process."""

    def __init__(self) -> None:
        self._storages: dict[int, torch.UntypedStorage] = {}
        # Bound here so that a candidate that patches modules patches nothing we use.
        self._plain = (torch.Tensor, torch.nn.Parameter)
        self._copy: Any = torch._C.TensorBase.copy_

    def map(
        self, places: Sequence[dict[str, Any]], descriptors: Sequence[int], device: str
    ) -> None:
        """Map memory whose descriptors came along, and close them."""
        for place, descriptor in zip(places, descriptors, strict=True):
            if place["memory"] == "driver":
                mapping = open_descriptor(descriptor, place["bytes"], torch.device(device).index)
                storage: Any = mapping.tensor().untyped_storage()
            else:
                path = f"/proc/self/fd/{descriptor}"
                storage = torch.UntypedStorage.from_file(path, True, place["bytes"])
            self._storages[place["id"]] = storage
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

    def hand_over(
        self,
        results: Sequence[Any],
        outputs: Sequence[dict[str, Any]],
        storages: Sequence[dict[str, Any]],
        device: str,
    ) -> list[dict[str, Any]]:
        """Copy results into the judge's memory; what each of them was. One that is no plain tensor
        is told by its type alone: it could do its work while it is copied."""
        known = {storage.data_ptr() for storage in self._storages.values()}
        mapped = [self.storage(place) for place in storages]
        described: list[dict[str, Any]] = []
        for index, value in enumerate(results):
            if type(value) not in self._plain:
                described.append({"type": type(value).__name__})
                continue
            told = {
                "type": "tensor",
                "shape": list(value.shape),
                "stride": list(value.stride()),
                "dtype": str(value.dtype).removeprefix("torch."),
                "device": str(value.device),
                "aliases_input": value.untyped_storage().data_ptr() in known,
            }
            described.append(told)
            place = outputs[index] if index < len(outputs) else None
            fits = place and (told["shape"], told["dtype"]) == (place["size"], place["dtype"])
            if place and fits and value.device.type == torch.device(device).type:
                with torch.inference_mode():
                    self._copy(open_tensor(place, mapped, device), value)
        return described

"""The judge's memory as another process has it: mapped once, found by its number."""

from __future__ import annotations

import base64
import os
from collections.abc import Sequence
from typing import Any

import torch

from beamsearch.gpu.driver import open_descriptor
from beamsearch.judge.sandbox.protocol import Worker, open_tensor

Answer = dict[str, Any]
Places = list[dict[str, Any]]


class MappingWorker(Worker):
    """A worker that has memory of the judge's."""

    def __init__(self) -> None:
        self.device = "cpu"
        self._storages: dict[int, torch.UntypedStorage] = {}
        # Bound here so that a candidate that patches modules patches nothing we use.
        self._plain = (torch.Tensor, torch.nn.Parameter)
        self._copy: Any = torch._C.TensorBase.copy_
        torch.set_num_threads(1)

    def do_open(self, device: int) -> Answer:
        """Take a GPU, before any candidate is there."""
        self.device = f"cuda:{device}"
        torch.cuda.set_device(device)
        torch.zeros(1, device=self.device)  # the context
        return {}

    def do_map(self, places: Places) -> Answer:
        """Map memory whose descriptors came along, and close them."""
        for place, descriptor in zip(places, self.descriptors, strict=True):
            size, index = place["bytes"], torch.device(self.device).index
            if place["memory"] == "driver":
                storage: Any = open_descriptor(descriptor, size, index).tensor().untyped_storage()
            else:
                path = f"/proc/self/fd/{descriptor}"
                storage = torch.UntypedStorage.from_file(path, True, size)
            self._storages[place["id"]] = storage
            os.close(descriptor)
        return {}

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

    def wait(self) -> None:
        """Until everything that this process has given the GPU is done, on whatever stream."""
        if self.device != "cpu":
            torch.cuda.synchronize()

    def _hand_over(self, results: Sequence[Any], outputs: Places, storages: Places) -> Answer:
        """Copy results into the judge's memory; what each of them was. One that is no plain tensor
        is described by its type alone: it could do its work while it is copied."""
        known = {storage.data_ptr() for storage in self._storages.values()}
        mapped = [self.storage(place) for place in storages]
        described: Places = []
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
            if place and fits and value.device.type == torch.device(self.device).type:
                with torch.inference_mode():
                    self._copy(open_tensor(place, mapped, self.device), value)
        self.wait()
        return {"results": described}

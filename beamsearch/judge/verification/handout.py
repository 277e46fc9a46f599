"""An input set in memory that another process maps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from beamsearch.judge.sandbox.memory import GUARD_BYTES, Buffer
from beamsearch.judge.sandbox.protocol import open_tensor

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Handout:
    """An input set as one candidate process gets it."""

    arguments: dict[str, Any]
    storages: list[dict[str, Any]]
    outputs: list[dict[str, Any]]
    output_storages: list[dict[str, Any]]
    inputs: list[Buffer]
    results: list[Buffer]
    checksums: list[int]
    """Of the inputs, as they were handed out."""

    def changed(self) -> set[int]:
        """Numbers of the inputs' and parameters' storages that are not as they were handed out."""
        sums = zip(self.inputs, self.checksums, strict=True)
        return {number for number, (buffer, sum_) in enumerate(sums) if buffer.checksum() != sum_}

    def state(self, name: str) -> tuple[int, torch.Tensor]:
        """A parameter or buffer of the model: its storage's number, and what it holds."""
        place = self.arguments["state"][name]["tensor"]
        storages = [buffer.storage for buffer in self.inputs]
        tensor = open_tensor(place, storages, str(storages[0].device))
        return place["storage"], tensor

    def poison(self) -> None:
        """Make every result that is not written show."""
        for buffer in self.results:
            buffer.poison()
        _settle(self.results)


def fill(buffer: Buffer, source: torch.UntypedStorage) -> None:
    """Copy a storage's bytes in behind the guard; every byte around them has all bits set."""
    import torch

    size = source.nbytes()
    buffer.poison()
    flat = torch.empty(0, dtype=torch.uint8, device=source.device).set_(source, 0, (size,), (1,))
    buffer.view(torch.uint8, (buffer.size,))[GUARD_BYTES : GUARD_BYTES + size].copy_(flat)


def _close(buffers: Sequence[Buffer]) -> None:
    for buffer in buffers:
        buffer.close()


def _settle(buffers: Sequence[Buffer]) -> None:
    """Wait until what was written here can be seen by another process."""
    import torch

    for device in {buffer.storage.device for buffer in buffers}:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

"""An input set in memory that one process maps, and where its results go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch

from beamsearch.judge.arguments import settle, storages_of
from beamsearch.judge.sandbox.memory import Buffer
from beamsearch.judge.sandbox.protocol import open_tensor
from beamsearch.problem.instance import Instance

S = TypeVar("S")
"""The kind of set."""


@dataclass(frozen=True)
class Handout(Generic[S]):
    """An input set as one candidate process gets it."""

    of: S
    given: dict[str, Any]
    """What a call is bound to: `arguments`, and how their `storages` are mapped."""
    wanted: dict[str, Any]
    """Where its results go: `outputs`, and how their `storages` are mapped."""
    inputs: list[Buffer]
    results: list[Buffer]
    checksums: list[int]
    """Of the inputs, as they were handed out; of renewed ones, once their results are expected."""

    def changed(self) -> set[int]:
        """Numbers of the inputs' and parameters' storages that are not as they were handed out."""
        sums = zip(self.inputs, self.checksums, strict=True)
        return {number for number, (buffer, sum_) in enumerate(sums) if buffer.checksum() != sum_}

    def state(self, name: str) -> tuple[int, torch.Tensor]:
        """A parameter or buffer of the model: its storage's number, and what it holds."""
        place = self.given["arguments"]["state"][name]["tensor"]
        storages = [buffer.storage for buffer in self.inputs]
        return place["storage"], open_tensor(place, storages, str(storages[0].device))

    def sum_up(self, instance: Instance) -> None:
        """Take the checksums of these values, which are in the inputs or ought to be."""
        pairs = zip(self.inputs, storages_of(instance).values(), strict=True)
        self.checksums[:] = [buffer.checksum_with(storage) for buffer, storage in pairs]

    def poison(self) -> None:
        """Make every result that is not written show."""
        for buffer in self.results:
            buffer.poison()
        settle(self.results)

"""Room in a GPU's memory, which the judges of several runs share. Each takes what it needs while it
has the lane, and leaves room for the next."""

from __future__ import annotations

import time

import torch

from beamsearch.judge.runner.client import RunnerProcess
from beamsearch.judge.sandbox.memory import SHORT
from beamsearch.judge.verification.inputs import InputSets

SUBJECT_CALLS = 4
"""A subject is to find room for so many times what the problem reads and writes, for results and a
library's workspaces, and memory that is not short. Half of the GPU's is always enough."""
REST_SHARE = 0.4
"""Part of the memory below which a judge that rests keeps one input set alone. Three runs on 80 GB
were seen to take 52 GB at the least, with all sets kept, and ended for want of memory."""
WAIT_S = 20.0
"""Seconds for others to end a job and give back what it took."""
LOOK_S = 0.2


class Room:
    """The memory of one GPU, as the judge of one problem wants it."""

    def __init__(self, device: str, least_bytes: int) -> None:
        """`least_bytes`: what the problem reads and writes."""
        self._device = torch.device(device)
        self._least_bytes = least_bytes

    @property
    def is_half_full(self) -> bool:
        """Whether more than half of the memory is taken."""
        free, total = self._memory()
        return 2 * free < total

    @property
    def is_short(self) -> bool:
        """Whether less is free than is to be while nobody works."""
        free, total = self._memory()
        return free < REST_SHARE * total

    @property
    def is_crowded(self) -> bool:
        """Whether a subject of a comparison has too little."""
        free, total = self._memory()
        room = max(total // SHORT, SUBJECT_CALLS * self._least_bytes)
        return free < min(room, total // 2)

    def stays_crowded(self, sets: InputSets) -> bool:
        """Whether it is also where torch gave back what it only keeps."""
        if not self.is_crowded:
            return False
        sets.release()
        return self.is_crowded

    def rest(self, sets: InputSets, candidates: RunnerProcess | None) -> None:
        """Leave room for whoever has the lane next."""
        if self.is_half_full:
            sets.release()
        if self.is_short:
            self.give_back(sets, candidates)

    def give_back(self, sets: InputSets, candidates: RunnerProcess | None) -> None:
        """Give back all input sets but one; `candidates` is the runner that has them mapped. Those
        that are there are made anew each time from then on."""
        if candidates is not None:
            candidates.unmap()
        sets.store_one()

    def wait(self) -> None:
        """Until others have left room; not for ever. Whoever has the lane keeps them from it."""
        deadline = time.monotonic() + WAIT_S
        while self.is_short and time.monotonic() < deadline:
            time.sleep(LOOK_S)

    def wait_for(self, need_bytes: int) -> int:
        """The bytes that are free: once they are so many, or others had time to leave room, or all
        of the GPU's would not do."""
        deadline = time.monotonic() + WAIT_S
        while (memory := self._memory())[0] < need_bytes <= memory[1]:
            if time.monotonic() > deadline:
                break
            time.sleep(LOOK_S)
        return memory[0]

    def _memory(self) -> tuple[int, int]:
        """Bytes that are free, and all."""
        return torch.cuda.mem_get_info(self._device)

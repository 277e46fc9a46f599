"""What judges that share a GPU's memory leave each other."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import torch

from beamsearch.errors import ShortOfMemory
from beamsearch.executor.local import LocalExecutor
from beamsearch.gpu.machine import find_machine
from beamsearch.judge import room as module
from beamsearch.judge.room import Room
from beamsearch.problem.memory import needed
from beamsearch.problem.problem import Problem
from beamsearch.records.job import FloorJob

TOTAL = 80 << 30


class Held:
    """Memory of a GPU, what a judge has of it, and what was done in which order."""

    def __init__(self, free: float) -> None:
        self.free = int(free * TOTAL)
        self.done: list[str] = []

    def release(self) -> None:
        self.done.append("release")

    def unmap(self) -> None:
        self.done.append("unmap")

    def store_one(self) -> None:
        self.done.append("store one")


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Held:
    held = Held(0.1)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (held.free, TOTAL))
    return held


@pytest.fixture
def room(scale_problem: Problem) -> Room:
    return Room(scale_problem, "cuda:0")


@pytest.mark.parametrize(
    ("free", "done"),
    [
        (0.55, []),
        (0.45, ["release"]),
        (0.35, ["release", "unmap", "store one"]),  # nobody has them mapped as they are given back
    ],
)
def test_a_judge_that_rests_leaves_two_fifths_free(
    gpu: Held, room: Room, free: float, done: list[str]
) -> None:
    gpu.free = int(free * TOTAL)
    room.rest(gpu, gpu)  # type: ignore[arg-type]
    assert gpu.done == done


def test_without_a_runner_there_is_none_to_unmap(gpu: Held, room: Room) -> None:
    room.rest(gpu, None)  # type: ignore[arg-type]
    assert gpu.done == ["release", "store one"]


def test_others_have_time_to_leave_room(
    gpu: Held, room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = iter([0.2, 0.3, 0.6])
    monkeypatch.setattr(module, "WAIT_S", 60.0)

    def left(_: float) -> None:
        gpu.free = int(next(waits) * TOTAL)

    monkeypatch.setattr(time, "sleep", left)
    room.wait()
    assert gpu.free == int(0.6 * TOTAL)


def test_nobody_waits_for_ever(
    gpu: Held, room: Room, monkeypatch: pytest.MonkeyPatch, scale_problem: Problem
) -> None:
    monkeypatch.setattr(module, "WAIT_S", 0.3)
    began = time.monotonic()
    room.wait()
    gpu.free = needed(scale_problem).total - 1
    assert room.wait_to_begin() == gpu.free
    assert 0.6 <= time.monotonic() - began < 5


def test_a_problem_begins_as_soon_as_it_fits(
    gpu: Held, room: Room, monkeypatch: pytest.MonkeyPatch, scale_problem: Problem
) -> None:
    need = needed(scale_problem).total
    gpu.free = need - 1
    monkeypatch.setattr(time, "sleep", lambda _: setattr(gpu, "free", need))
    assert room.wait_to_begin() == need


def test_a_job_that_is_short_of_memory_is_done_again(
    scale_problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[str] = []
    executor = LocalExecutor(
        scale_problem, machine=find_machine(None, target="h200"), scratch=tmp_path, seed=3
    )
    run = executor._run

    def short(job: FloorJob) -> object:
        tries.append("tried")
        if len(tries) % 2:
            raise ShortOfMemory("no memory")
        return run(job)

    monkeypatch.setattr(executor, "_run", short)
    try:
        assert executor.run(FloorJob()).least_bytes > 0
        assert len(tries) == 2
        monkeypatch.setattr(executor, "_run", lambda _: short(tries.clear()))  # type: ignore[func-returns-value, arg-type]
        with pytest.raises(ShortOfMemory):
            executor.run(FloorJob())
    finally:
        executor.close()

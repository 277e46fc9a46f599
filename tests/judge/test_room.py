"""What judges that share a GPU's memory leave each other."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from beamsearch.errors import ShortOfMemory
from beamsearch.executor.local import LocalExecutor
from beamsearch.gpu.machine import find_machine
from beamsearch.judge import room as module
from beamsearch.judge.on_gpu import MeasuringJudge
from beamsearch.judge.rejection import Log, Rejected
from beamsearch.judge.room import Room
from beamsearch.judge.sandbox.memory import SharedMemory
from beamsearch.judge.sandbox.protocol import Conversation
from beamsearch.problem.problem import Problem
from beamsearch.records.job import FloorJob, Judgement, Subject
from beamsearch.records.verdict import Outcome, Stage
from tests import ROOT

TOTAL = 80 << 30
READER = """
import os, socket, sys
sys.path.insert(0, os.getcwd())
import torch
from beamsearch.judge.sandbox.memory import MappingWorker

class Reader(MappingWorker):
    def do_read(self, storages):
        found = [self._storages[place["id"]] for place in storages]
        words = [torch.empty(0, dtype=torch.int64).set_(one, 0, (1,), (1,)) for one in found]
        return {"first": [int(word) for word in words]}

    def do_count(self):
        return {"mapped": len(self._storages)}

Reader().serve(socket.socket(fileno=int(sys.argv[1])))
"""
"""A process that reads what is handed over to it."""


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
def room() -> Room:
    return Room("cuda:0", least_bytes=1 << 30)


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
    waits = iter([0.2, 0.3, 0.45])
    monkeypatch.setattr(module, "WAIT_S", 60.0)

    def left(_: float) -> None:
        gpu.free = int(next(waits) * TOTAL)

    monkeypatch.setattr(time, "sleep", left)
    room.wait()
    assert gpu.free == int(0.45 * TOTAL)


def test_nobody_waits_for_ever(gpu: Held, room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAIT_S", 0.3)
    began = time.monotonic()
    room.wait()
    assert room.wait_for(gpu.free + 1) == gpu.free
    assert 0.6 <= time.monotonic() - began < 5


def test_a_problem_begins_as_soon_as_it_fits(
    gpu: Held, room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    need = gpu.free + 1
    monkeypatch.setattr(time, "sleep", lambda _: setattr(gpu, "free", need))
    assert room.wait_for(need) == need


def test_for_more_than_there_is_nobody_waits(gpu: Held, room: Room) -> None:
    began = time.monotonic()
    assert room.wait_for(TOTAL + 1) == gpu.free
    assert time.monotonic() - began < 1


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


@pytest.mark.parametrize(
    ("is_short", "is_full", "count"), [(True, True, 2), (True, False, 1), (False, True, 1)]
)
def test_a_kernel_is_judged_again_where_others_had_the_memory(
    monkeypatch: pytest.MonkeyPatch, is_short: bool, is_full: bool, count: int
) -> None:
    """Once, and only where memory is short though nobody works."""
    judge = MeasuringJudge.__new__(MeasuringJudge)
    tries: list[bool] = []
    verdict = Log().rejected(Rejected(Outcome.CRASHED, Stage.TRUE_SHAPES, "no memory"))

    def judged(*_: object) -> tuple[Judgement, bool]:
        tries.append(is_short)
        return Judgement(verdict=verdict), is_short

    monkeypatch.setattr(judge, "_judged", judged)
    monkeypatch.setattr(judge, "make_room", lambda: is_full)
    subject = Subject(name="kernel", source="")
    judgement = judge.judge(subject, seen={}, thorough=False, sanitize=False)
    assert len(tries) == count and judgement.verdict == verdict


def test_memory_that_was_given_up_is_handed_over_again(tmp_path: Path) -> None:
    memory = SharedMemory("cpu")
    buffers = [memory.allocate(64), memory.allocate(64)]
    ours, theirs = socket.socketpair()
    script = tmp_path / "reader.py"
    script.write_text(READER)
    command = [sys.executable, str(script), str(theirs.fileno())]
    with subprocess.Popen(command, pass_fds=[theirs.fileno()], cwd=ROOT) as process:
        theirs.close()
        talk = Conversation(ours, lambda gone: gone)

        def read() -> list[int]:
            places = [buffer.place for buffer in buffers]
            return list(talk.ask("read", 60, storages=places)["first"])

        for value in (3, 4):
            for number, buffer in enumerate(buffers):
                buffer.words().fill_(value + number)
            assert read() == [value, value + 1]
            assert talk.ask("count", 60)["mapped"] == 2
            talk.unmap(60)
            assert talk.ask("count", 60)["mapped"] == 0
        talk.close()
        assert process.wait(60) == 0
    for buffer in buffers:
        buffer.close()

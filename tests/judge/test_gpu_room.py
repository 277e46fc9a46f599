"""Judges on a GPU whose memory others have too: no kernel and no run fails for that."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from beamsearch.executor.local import LocalExecutor
from beamsearch.judge.on_gpu import MeasuringJudge
from beamsearch.judge.rejection import Log
from beamsearch.problem.problem import Problem
from beamsearch.records.job import CompareJob, JudgeJob, Subject
from tests.judge.conftest import SCALE_KERNEL, SCALE_PROBLEM, write_problem
from tests.judge.test_gpu import gpu_executor

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(170)]

GIB = 1 << 30
LARGE = SCALE_PROBLEM.replace("rows = 1024", "rows = 1 << 17")
"""1 GiB of inputs."""
SET_GIB = 1.0 + 2.0
"""What one set has: its inputs, and the oracle, which is in float32."""
KERNEL = Subject(name="kernel", source=SCALE_KERNEL)
Hold = Callable[[float], None]


@pytest.fixture
def problem(tmp_path: Path) -> Problem:
    return write_problem(tmp_path / "problems", LARGE)


@pytest.fixture
def hold() -> Iterator[Hold]:
    """Take all but so many GiB of what is free, until it is called again."""
    held: list[torch.Tensor] = []

    def take(left_gib: float) -> None:
        held.clear()
        torch.cuda.empty_cache()
        size = torch.cuda.mem_get_info()[0] - int(left_gib * GIB)
        held.append(torch.empty(max(1, size), dtype=torch.uint8, device="cuda"))

    yield take
    held.clear()
    torch.cuda.empty_cache()


@pytest.fixture
def executor(problem: Problem, tmp_path: Path) -> Iterator[LocalExecutor]:
    made = gpu_executor(problem, tmp_path / "scratch")
    yield made
    made.close()


def judge_of(executor: LocalExecutor) -> MeasuringJudge:
    assert executor._measuring is not None
    return executor._measuring


def stored(executor: LocalExecutor) -> int:
    return sum(inputs.shared is not None for inputs in judge_of(executor)._true._sets.values())


def is_right(executor: LocalExecutor, number: int) -> bool:
    """Of another kernel each time."""
    source = f"{SCALE_KERNEL}\n# {number}\n"
    judged = executor.run(JudgeJob(subject=Subject(name="kernel", source=source)))
    print(judged.verdict.outcome, judged.verdict.reason, torch.cuda.mem_get_info()[0] / GIB)
    return judged.verdict.correct


def test_a_judge_that_rests_keeps_one_set_where_memory_is_short(
    executor: LocalExecutor, hold: Hold
) -> None:
    assert is_right(executor, 1)
    many = stored(executor)
    assert many >= 3
    hold(20)
    before = torch.cuda.mem_get_info()[0]
    assert is_right(executor, 2)
    assert stored(executor) == 1
    # Inputs too, and not their oracles alone: the runner has them mapped no longer.
    assert torch.cuda.mem_get_info()[0] - before > (many - 1) * (SET_GIB - 0.5) * GIB
    assert is_right(executor, 3)
    subjects = [Subject(name="eager", kind="eager"), KERNEL]
    compared = executor.run(CompareJob(subjects=subjects))
    assert set(compared.measurements) == {"eager", "kernel"} and not compared.failed


def test_what_is_kept_can_tell_right_from_wrong(executor: LocalExecutor, hold: Hold) -> None:
    """Also where a kernel shows afterwards that it cannot."""
    true = judge_of(executor)._true
    assert is_right(executor, 1)
    true.dropped["own #1"] = "own #1: of no use"
    hold(20)
    assert is_right(executor, 2)
    (kept,) = [inputs for inputs in true._sets.values() if inputs.shared is not None]
    assert kept.proves
    true.dropped[kept.label] = f"{kept.label}: of no use"
    assert is_right(executor, 3)
    compared = executor.run(CompareJob(subjects=[KERNEL]))
    assert set(compared.measurements) == {"kernel"} and not compared.failed


@pytest.mark.parametrize("compared", [False, True])
def test_a_job_is_done_again_once_others_have_left_room(
    executor: LocalExecutor, hold: Hold, monkeypatch: pytest.MonkeyPatch, compared: bool
) -> None:
    asked: list[bool] = []
    judge = judge_of(executor)
    make_room = judge.make_room
    monkeypatch.setattr(judge, "make_room", lambda: asked.append(make_room()))
    judge._captures.captured(SCALE_KERNEL, judge._scratch, Log())  # else it compiles meanwhile
    hold(1.5)
    leave = threading.Timer(8, hold, [70])
    leave.start()
    try:
        if compared:
            found = executor.run(CompareJob(subjects=[KERNEL]))
            assert set(found.measurements) == {"kernel"} and not found.failed
        else:
            judged = executor.run(JudgeJob(subject=KERNEL))
            assert judged.verdict.correct, judged.verdict.reason
        assert asked == [True]
    finally:
        leave.join()


def test_a_run_begins_once_others_have_left_room(
    problem: Problem, hold: Hold, tmp_path: Path
) -> None:
    hold(1.5)
    leave = threading.Timer(3, hold, [70])
    leave.start()
    try:
        executor = gpu_executor(problem, tmp_path / "scratch")
        executor.close()
    finally:
        leave.join()

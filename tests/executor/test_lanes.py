"""Several lanes as one executor, each a real process that models a GPU."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from beamsearch.errors import KernelError, Stopped
from beamsearch.executor.choice import open_executor
from beamsearch.executor.client import LaneSpec
from beamsearch.executor.lane_client import LaneProcess
from beamsearch.executor.lanes import Lanes
from beamsearch.executor.local import LocalExecutor
from beamsearch.gpu.machine import modelled
from beamsearch.gpu.usage import Usage
from beamsearch.problem.problem import read_problem
from beamsearch.records.job import JudgeJob, ProfileJob, Subject
from beamsearch.records.verdict import Outcome
from tests import ROOT

FOLDER = ROOT / "tests" / "scaling"
SOURCE = (FOLDER / "input_kernel.py").read_text()
WRONG = SOURCE.replace("x * w, 0.0", "x * w, 1.0")


@pytest.fixture(scope="module")
def problem():
    return read_problem(FOLDER / "problem.py")


@pytest.fixture
def lanes(problem, tmp_path):
    notes = []
    executor = open_executor(
        problem,
        [modelled(), modelled()],
        scratch=tmp_path / ".scratch",
        seed=3,
        profiler="auto",
        strict_nan=False,
        usage=Usage(),
        tell=notes.append,
    )
    assert isinstance(executor, Lanes)
    executor.notes = notes
    yield executor
    executor.close()


def processes(executor):
    return [slot.client.process for slot in executor._slots]


def judged(executor, *sources):
    """The judgements of kernels that are asked for at once."""
    found = {}

    def judge(number, source):
        job = JudgeJob(subject=Subject(name=f"k{number}", source=source))
        found[number] = executor.run(job)

    threads = [
        threading.Thread(target=judge, args=(number, source))
        for number, source in enumerate(sources)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[number] for number in range(len(sources))]


def test_two_lanes_judge_as_one_does_and_share_the_work(problem, tmp_path, lanes):
    wider = SOURCE.replace("BLOCK=256", "BLOCK=512").replace("total, 256", "total, 512")
    sources = [SOURCE, WRONG, wider]
    alone = LocalExecutor(problem, machine=modelled(), scratch=tmp_path / "one", seed=3)
    try:
        expected = judged(alone, *sources)
        profile = alone.run(ProfileJob(subject=Subject(name="k", source=SOURCE)))
    finally:
        alone.close()
    assert judged(lanes, *sources) == expected
    assert [one.verdict.outcome for one in expected] == ["correct", "wrong", "correct"]
    assert lanes.run(ProfileJob(subject=Subject(name="k", source=SOURCE))) == profile
    assert set(lanes._homes.values()) == {0, 1}
    use = lanes.usage.so_far()
    assert set(use.lanes) == {"lane 0", "lane 1"}
    assert sum(use.idle_s.values()) == pytest.approx(
        sum(sum(lane.idle_s.values()) for lane in use.lanes.values()), abs=0.1
    )

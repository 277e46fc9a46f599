"""What a run waits for where its GPU is on another machine."""

import pytest

from beamsearch.errors import Waiting
from beamsearch.executor.remote import RemoteExecutor
from beamsearch.records.baselines import baseline_subjects
from beamsearch.records.job import CompareJob, JudgeJob, ProfileJob, Subject
from beamsearch.records.run import WINNER


def kernel(name):
    return Subject(name=name, source="pass")


def asked(*jobs):
    """What it says that it waits for, two workers having prepared two kernels each."""
    executor = RemoteExecutor("NVIDIA H200")
    executor.prepare([kernel("r0-s0"), *baseline_subjects()])
    for worker in "w0", "w1":
        executor.prepare([kernel(f"{worker}-v0"), kernel(f"{worker}-v1")])
    for job in jobs:
        with pytest.raises(Waiting, match="no NVIDIA H200") as raised:
            executor.run(job)
    return str(raised.value).partition(",")[0].removeprefix("waits for a GPU step ")


def test_it_says_which_step_it_waits_for():
    judge = JudgeJob(subject=kernel("w0-v0"))
    assert asked(judge) == "(to judge 2 kernels)"
    assert asked(judge, JudgeJob(subject=kernel("w1-v0"))) == "(to judge 4 kernels)"
    assert asked(JudgeJob(subject=kernel("r1-w0-v0-f1"))) == "(to judge 1 kernel)"
    assert asked(ProfileJob(subject=kernel("r0-s0"))) == "(to profile)"
    assert asked(CompareJob(subjects=[kernel("a"), kernel("r0-s0")])) == "(to confirm a win)"
    last = "(the closer look at the winner and its last timing)"
    assert asked(JudgeJob(subject=kernel("a"), thorough=True)) == last
    assert asked(CompareJob(subjects=[kernel(WINNER), kernel("input")])) == last

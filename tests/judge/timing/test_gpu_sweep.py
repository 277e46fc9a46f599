"""Twins and sweeps on a GPU: known before the lane is taken, and timed against each other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from beamsearch.executor.local import LocalExecutor
from beamsearch.problem.problem import find_problem
from beamsearch.records.job import JudgeJob, Subject, SweepJob
from beamsearch.records.verdict import Outcome, Stage
from beamsearch.run.tuning import forms_of
from tests.judge.test_gpu import gpu_executor

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def pool() -> str:
    problem = find_problem("43")
    assert problem.input_kernel is not None
    return problem.input_kernel.read_text()


@pytest.fixture(scope="module")
def executor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalExecutor]:
    made = gpu_executor(find_problem("43"), tmp_path_factory.mktemp("sweep"))
    yield made
    made.close()


def test_a_twin_takes_no_lane(executor: LocalExecutor, pool: str) -> None:
    first = executor.run(JudgeJob(subject=Subject(name="first", source=pool)))
    assert first.verdict.correct
    twin = pool.replace("import torch\n", "import torch\n\nUNUSED = 1\n", 1)
    assert twin != pool
    seen = {str(first.verdict.code_fingerprint): "r1-w0-v0"}
    before = executor.usage.so_far().busy_s
    subject = Subject(name="twin", source=twin)
    executor.prepare([subject])
    verdict = executor.run(JudgeJob(subject=subject, seen=seen)).verdict
    assert (verdict.outcome, verdict.stage) == (Outcome.DUPLICATE, Stage.COMPILE)
    assert "r1-w0-v0" in verdict.reason
    assert executor.usage.so_far().busy_s == before


def test_a_sweep_tells_fast_forms_from_slow_and_wrong_ones_do_no_harm(
    executor: LocalExecutor, pool: str
) -> None:
    alone = executor.run(JudgeJob(subject=Subject(name="alone", source=pool)))
    assert alone.measurement is not None
    forms = {"as it is": pool} | forms_of(pool, 8)
    forms["wrong"] = pool.replace("tl.store(", "tl.store(1 + ", 1)
    forms["crashes"] = pool.replace("tl.store(", "tl.store((1 << 42) + ", 1)
    subjects = [Subject(name=name, source=source) for name, source in forms.items()]
    sweep = executor.run(SweepJob(subjects=subjects))
    print(sweep)
    assert not sweep.modelled
    assert {"wrong", "crashes"} <= set(sweep.failed)
    assert sweep.times_ms["as it is"][-1] == pytest.approx(alone.measurement.time_ms, rel=0.05)
    last = max(len(times) for times in sweep.times_ms.values())
    assert 2 <= sum(len(times) == last for times in sweep.times_ms.values()) < len(sweep.times_ms)
    again = executor.run(JudgeJob(subject=Subject(name="after", source=pool + "\n# after\n")))
    assert again.verdict.correct, again.verdict.reason

"""A correct verdict says by how much the results are off."""

from __future__ import annotations

import pytest

from beamsearch.executor.local import LocalExecutor
from beamsearch.records.job import JudgeJob, Subject
from tests.judge.conftest import SCALE_KERNEL


def rms_error(executor: LocalExecutor, source: str) -> float | None:
    verdict = executor.run(JudgeJob(subject=Subject(name="k", source=source))).verdict
    assert verdict.correct, verdict.reason
    return verdict.rms_error


def test_an_error_is_told_as_a_share_of_the_outputs_spread(executor: LocalExecutor):
    """Results are 2 x + bias of uniform values: 1.5 in the mean, 0.65 of standard deviation."""
    plain = rms_error(executor, SCALE_KERNEL)
    scaled = rms_error(executor, SCALE_KERNEL.replace("(2 * x + bias)", "((2 * x + bias) * 1.002)"))
    assert plain is not None and 0 < plain < 0.005  # roundings to bfloat16
    assert scaled is not None and scaled - plain > 0.001
    assert scaled == pytest.approx((plain**2 + (0.002 * 1.63 / 0.65) ** 2) ** 0.5, rel=0.3)

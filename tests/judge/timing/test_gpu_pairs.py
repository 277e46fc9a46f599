"""On a GPU that is nearly full, what does not fit all at once is compared two at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch

from beamsearch.judge import on_gpu
from beamsearch.judge.timing.pairs import compare_fitting
from beamsearch.records.job import CompareJob, Comparison, Subject
from tests.judge.conftest import SCALE_KERNEL, SCALE_PROBLEM, write_problem
from tests.judge.test_gpu import gpu_executor

pytestmark = pytest.mark.gpu

GIB = 1 << 30
LARGE = SCALE_PROBLEM.replace("rows = 1024", "rows = 1 << 18")
"""2 GiB of inputs, and as much of results."""
SUBJECTS = [
    Subject(name="eager", kind="eager"),
    Subject(name="compile", kind="compile"),
    Subject(name="max_autotune", kind="max_autotune"),
    Subject(name="kernel", source=SCALE_KERNEL),
]


def test_four_that_do_not_fit_have_their_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def counted(
        compare: Callable[[Sequence[Subject]], Comparison], subjects: Sequence[Subject]
    ) -> Comparison:
        def one(some: Sequence[Subject]) -> Comparison:
            asked.append(len(some))
            return compare(some)

        return compare_fitting(one, subjects)

    monkeypatch.setattr(on_gpu, "compare_fitting", counted)
    problem = write_problem(tmp_path / "problems", LARGE, "large")
    executor = gpu_executor(problem, tmp_path / "scratch")
    held: list[torch.Tensor] = []
    try:
        roomy = executor.run(CompareJob(subjects=SUBJECTS))
        assert asked == [4] and not roomy.failed
        while asked[-1] == 4:
            free = torch.cuda.mem_get_info()[0]
            wanted = max(GIB, free - 28 * GIB)
            held.append(torch.empty(wanted, dtype=torch.uint8, device="cuda"))
            comparison = executor.run(CompareJob(subjects=SUBJECTS))
            print(f"{(free - wanted) / GIB:.0f} GiB free: {asked}, {comparison.failed}")
    finally:
        held.clear()
        executor.close()
    assert asked[-4:] == [4, 2, 2, 2] and not comparison.failed
    for name, measured in comparison.measurements.items():
        print(name, measured.time_ms, roomy.measurements[name].time_ms)
        assert measured.time_ms == pytest.approx(roomy.measurements[name].time_ms, rel=0.05)

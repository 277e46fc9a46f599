"""On a GPU that is nearly full, subjects take turns in its memory, and are as fast as with room."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from beamsearch.judge import room
from beamsearch.judge.timing import measure
from beamsearch.judge.verification.inputs import InputSet
from beamsearch.records.job import CompareJob, Subject
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


@pytest.mark.parametrize("left_gib", [24, 16])
def test_all_have_their_times_where_they_do_not_fit_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left_gib: int
) -> None:
    """In 16 GiB they do not fit together, and with 24 there is to be too little room for one.
    Memory is not asked for anew in every timed call."""
    begun: list[bool] = []
    renewed: list[InputSet] = []
    turn, renew = measure.Comparer._turn, InputSet.renew

    def counted(comparer: measure.Comparer, timing: measure.Timing) -> None:
        begun.append(comparer._one_at_a_time)
        turn(comparer, timing)

    def count_renewal(inputs: InputSet, seed: int | None = None) -> None:
        renewed.append(inputs)
        renew(inputs, seed)

    monkeypatch.setattr(measure.Comparer, "_turn", counted)
    monkeypatch.setattr(InputSet, "renew", count_renewal)
    executor = gpu_executor(write_problem(tmp_path / "problems", LARGE), tmp_path / "scratch")
    held: list[torch.Tensor] = []
    try:
        roomy = executor.run(CompareJob(subjects=SUBJECTS))
        assert not roomy.failed and not any(begun)
        begun.clear()
        renewed.clear()
        free, _ = torch.cuda.mem_get_info()
        held.append(torch.empty(free - left_gib * GIB, dtype=torch.uint8, device="cuda"))
        frees = torch.cuda.memory_stats()["num_device_free"]
        monkeypatch.setattr(room, "SUBJECT_CALLS", 64)  # a subject is to find half of the memory
        crowded = executor.run(CompareJob(subjects=SUBJECTS))
        frees = torch.cuda.memory_stats()["num_device_free"] - frees
        unused = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    finally:
        held.clear()
        executor.close()
    print(f"{frees} pieces of memory given back in {len(renewed)} renewals")
    assert frees < len(renewed)
    assert unused < GIB  # others may have it while this lane rests
    assert not crowded.failed and begun and all(begun)
    for name, measured in crowded.measurements.items():
        print(name, measured.time_ms, roomy.measurements[name].time_ms)
        assert measured.time_ms == pytest.approx(roomy.measurements[name].time_ms, rel=0.05)

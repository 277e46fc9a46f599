"""Subjects that do not fit on a GPU all at once are compared two at a time."""

import pytest
import torch

from beamsearch.errors import ProblemError
from beamsearch.judge.timing.pairs import compare_fitting
from beamsearch.records.job import Comparison, Subject
from beamsearch.records.measurement import Measurement

TIMES = {"eager": 6.0, "compile": 4.0, "max_autotune": 3.0, "anchor": 2.0}


def measured(time_ms):
    fields = {"p20_ms": time_ms * 0.9, "p80_ms": time_ms * 1.1, "count": 20, "gpu": "H200"}
    fields |= {"gpu_uuid": "GPU-1", "visit": "v"}
    return Measurement(source="measured", time_ms=time_ms, **fields)


class Gpu:
    """Everything is half as slow again in each comparison after the one before; so many fit."""

    def __init__(self, room, fails=()):
        self.room = room
        self.fails = fails
        self.asked = []
        self.speed = 1.0

    def compare(self, subjects):
        names = [subject.name for subject in subjects]
        self.asked.append(names)
        if len(names) > self.room:
            raise ProblemError("does not fit") from torch.OutOfMemoryError()
        times = {n: TIMES[n] * self.speed for n in names if n not in self.fails}
        self.speed *= 1.5
        return Comparison(
            measurements={n: measured(t) for n, t in times.items()},
            failed={n: "it is wrong" for n in names if n in self.fails},
            turns={n: [t, 1.1 * t] for n, t in times.items()},
        )


SUBJECTS = [Subject(name=name) for name in TIMES]


def test_what_fits_is_compared_all_together():
    gpu = Gpu(room=4)
    found = compare_fitting(gpu.compare, SUBJECTS)
    assert gpu.asked == [list(TIMES)]
    assert found.measurements["eager"].time_ms == 6.0


def test_what_does_not_is_brought_together_by_the_last_ones_time():
    gpu = Gpu(room=2)
    found = compare_fitting(gpu.compare, SUBJECTS)
    assert gpu.asked[1:] == [[name, "anchor"] for name in TIMES if name != "anchor"]
    assert {n: m.time_ms for n, m in found.measurements.items()} == pytest.approx(TIMES)
    assert found.measurements["compile"].p80_ms == pytest.approx(4.4)
    assert found.turns["max_autotune"] == pytest.approx([3.0, 3.3])


def test_one_that_fails_takes_no_other_along():
    found = compare_fitting(Gpu(room=2, fails=["compile"]).compare, SUBJECTS)
    assert found.failed == {"compile": "it is wrong"}
    assert set(found.measurements) == {"eager", "max_autotune", "anchor"}


def test_two_that_do_not_fit_are_an_error():
    with pytest.raises(ProblemError, match="does not fit"):
        compare_fitting(Gpu(room=1).compare, SUBJECTS)


def test_another_error_is_not_tried_again():
    asked = []

    def compare(subjects):
        asked.append(subjects)
        raise ProblemError("the reference fails")

    with pytest.raises(ProblemError, match="the reference fails"):
        compare_fitting(compare, SUBJECTS)
    assert len(asked) == 1

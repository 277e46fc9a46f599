"""The baselines are measured beside the first round, once, and are in the record after it."""

import threading

import pytest

from beamsearch.errors import BeamsearchError, Stopped
from beamsearch.gpu.machine import modelled
from beamsearch.gpu.usage import Usage
from beamsearch.problem.problem import read_problem
from beamsearch.records.baselines import Baselines
from beamsearch.records.job import Comparison
from beamsearch.records.run import RunRecord
from beamsearch.records.trace import Trace
from beamsearch.run.baseline_times import BaselineTimes
from beamsearch.run.known_floor import KnownFloor
from beamsearch.run.progress import Progress
from beamsearch.run.stop import StopToken
from beamsearch.settings import Settings
from tests.llm.runs import PROBLEM
from tests.run.test_confirmation import measured


class Comparing:
    """An executor whose comparison takes until it may end."""

    measures = True

    def __init__(self, *, quick=False, error=None):
        self.quick, self.error = quick, error
        self.may_end = threading.Event()
        self.subjects = []

    def run(self, job):
        self.subjects.append([subject.name for subject in job.subjects])
        assert self.may_end.wait(20)
        if self.error:
            raise self.error
        return Comparison(measurements={s.name: measured(2.0) for s in job.subjects}, failed={})


def baselines_of(folder, executor, stop=None):
    """Those of a run in this folder."""
    stop = stop or StopToken()
    problem, machine = read_problem(PROBLEM / "problem.py"), modelled()
    record = RunRecord(
        problem=problem.name,
        problem_dtype=problem.dtype,
        settings=Settings(llm="playbook", quick=executor.quick),
        environment=machine.environment(),
        who_thinks="playbook",
        status="running",
        baselines=Baselines(),
    )
    trace = Trace(folder)
    progress = Progress(trace, record, 0.0, Usage())
    floor = KnownFloor(problem, machine, executor, progress, observer=None)
    source = (PROBLEM / "input_kernel.py").read_text()
    times = BaselineTimes(trace, problem, machine, executor, source, floor, progress, stop)
    return times, progress


def test_they_are_measured_once_while_others_go_on(tmp_path):
    executor = Comparing()
    baselines, progress = baselines_of(tmp_path, executor)
    baselines.begin()  # returns although none is measured yet
    baselines.begin()
    assert progress.record.baselines == Baselines()
    executor.may_end.set()
    baselines.end()
    assert progress.record.baselines.max_autotune == measured(2.0)
    assert executor.subjects == [["eager", "compile", "max_autotune", "anchor"]]

    # A run that goes on takes those
    again, progress = baselines_of(tmp_path, Comparing(error=BeamsearchError("never asked")))
    again.end()
    assert progress.record.baselines.eager == measured(2.0)


def test_a_quick_look_leaves_out_what_tunes_for_minutes(tmp_path):
    executor = Comparing(quick=True)
    executor.may_end.set()
    baselines, progress = baselines_of(tmp_path, executor)
    baselines.end()
    assert executor.subjects == [["eager", "compile", "anchor"]]
    assert progress.record.baselines.absent == {"max_autotune": "left out (--quick)"}


def test_what_fails_is_raised_where_they_are_waited_for(tmp_path):
    executor = Comparing(error=BeamsearchError("something else uses the GPU"))
    executor.may_end.set()
    baselines, progress = baselines_of(tmp_path, executor)
    baselines.begin()
    with pytest.raises(BeamsearchError, match="something else uses the GPU"):
        baselines.end()
    assert progress.record.baselines == Baselines()


def test_a_stop_does_not_wait_for_them(tmp_path):
    executor, stop = Comparing(), StopToken()
    baselines, progress = baselines_of(tmp_path, executor, stop)
    baselines.begin()
    stop.set()
    with pytest.raises(Stopped):
        baselines.end()
    assert progress.record.baselines == Baselines()
    executor.may_end.set()

"""Lanes on two real GPUs. `-s` prints what was seen."""

import os
import signal
import threading
import time

import pytest

from beamsearch.cli.display import PlainDisplay
from beamsearch.executor.choice import open_executor
from beamsearch.gpu.environment import devices
from beamsearch.gpu.machine import find_machines
from beamsearch.gpu.usage import Usage
from beamsearch.problem.problem import read_problem
from beamsearch.records.job import CompareJob, JudgeJob, Subject
from beamsearch.records.measurement import Measurement
from beamsearch.records.ratios import comparable_times
from beamsearch.records.trace import Trace, read_record
from beamsearch.run.run import resume, run
from beamsearch.settings import Settings
from tests import ROOT

FOLDER = ROOT / "tests" / "scaling"
SOURCE = (FOLDER / "input_kernel.py").read_text()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(280),
    pytest.mark.skipif(len(devices()) < 2, reason="needs two NVIDIA GPUs"),
]


def form(block):
    return SOURCE.replace("BLOCK=256", f"BLOCK={block}").replace("total, 256", f"total, {block}")


@pytest.fixture
def lanes(tmp_path):
    executor = open_executor(
        read_problem(FOLDER / "problem.py"),
        find_machines(gpus="0,1"),
        scratch=tmp_path / ".scratch",
        seed=3,
        profiler="compiler",
        strict_nan=False,
        usage=Usage(),
        tell=print,
    )
    yield executor
    executor.close()


def judged(lanes, sources):
    found = {}

    def judge(number):
        job = JudgeJob(subject=Subject(name=f"k{number}", source=sources[number]))
        found[number] = lanes.run(job)

    threads = [threading.Thread(target=judge, args=(number,)) for number in range(len(sources))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[number] for number in range(len(sources))]


def test_both_gpus_judge_and_each_times_the_input_kernel_first(lanes):
    anchors = []
    lanes.anchor(Subject(name="input", source=SOURCE), anchors.append, ())
    times = [one.measurement for one in judged(lanes, [form(b) for b in (128, 512, 1024, 2048)])]
    assert {time.gpu_uuid for time in times} == {device.uuid for device in devices()[:2]}
    assert {time.visit for time in times} == {time.visit for time in anchors}
    pair = [Subject(name=str(b), source=form(b)) for b in (128, 512)]
    both = lanes.run(CompareJob(subjects=pair)).measurements
    assert both["128"].visit == both["512"].visit
    print([str(time) for time in times], lanes.usage.so_far())


def test_a_killed_lane_is_a_new_visit_with_an_anchor_of_its_own(lanes):
    anchors = []
    lanes.anchor(Subject(name="input", source=SOURCE), anchors.append, ())
    judged(lanes, [form(128), form(512)])
    for slot in lanes._slots:
        os.kill(slot.client.process.pid, signal.SIGKILL)
        slot.client.process.wait()
    again = judged(lanes, [form(1024), form(2048)])
    assert all(one.verdict.correct for one in again)
    assert {one.measurement.visit for one in again} <= {anchor.visit for anchor in anchors[2:]}


@pytest.mark.slow
def test_a_run_on_two_gpus_ranks_by_ratios_and_goes_on_on_one(tmp_path):
    problem = read_problem(FOLDER / "problem.py")
    settings = Settings(rounds=1, workers=4, seed=7, llm="playbook", quick=True, gpus="all")
    begun = time.monotonic()
    with (tmp_path / "log").open("w") as log:
        folder, observer = tmp_path / "run", PlainDisplay(log)
        record = run(problem, settings, folder, kernel=None, observer=observer)
        took = time.monotonic() - begun
        assert len(record.environment.gpus) >= 2
        trace = Trace(folder)
        everyone = [c for done in trace.completed_rounds() for c in done.candidates]
        timed = {c.measurement.visit for c in everyone if c.measurement}
        assert len(timed) >= 2
        for visit in timed:
            assert read_record(trace.visit(visit), Measurement).visit == visit
        assert comparable_times(trace, everyone)
        again = resume(folder, observer=observer, limits={"rounds": 2, "gpus": "1"})
    assert again.status == "finished"
    print(f"{record.totals.candidates} candidates in {took:.1f} s; {record.totals.lane}")

"""Several lanes as one executor, each a real process that models a GPU."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from beamsearch.errors import KernelError, Stopped
from beamsearch.executor import lane_client, local
from beamsearch.executor.choice import open_executor
from beamsearch.executor.client import LOG, LaneSpec
from beamsearch.executor.lane_client import LaneProcess
from beamsearch.executor.lanes import Lanes
from beamsearch.executor.local import LocalExecutor
from beamsearch.gpu.machine import modelled
from beamsearch.gpu.usage import Usage
from beamsearch.judge.sandbox.processes import ForkServers
from beamsearch.problem.problem import read_problem
from beamsearch.records.job import JudgeJob, ProfileJob, Subject
from beamsearch.records.verdict import Outcome
from tests import PYTHONPATH, ROOT
from tests.run.test_resume import orphans

pytestmark = pytest.mark.slow
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


def test_of_several_runs_each_uses_its_part_of_the_cores(problem, tmp_path, monkeypatch):
    monkeypatch.setattr(local, "cores", lambda: 8)
    given = {
        "seed": 3,
        "profiler": "compiler",
        "strict_nan": False,
        "usage": Usage(),
        "tell": print,
    }
    used, verifying = [], []
    for beside in (1, 4, 40):
        place = {"scratch": tmp_path / str(beside), "beside": beside}
        executor = open_executor(problem, [modelled()], **given, **place)
        used.append(executor._judge._captures._compilers._max_workers)
        verifying.append(executor._judge._slots._value)
        executor.close()
    assert used == [8, 2, 1] and verifying == [2, 2, 1]


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


def test_a_lane_that_is_killed_changes_nothing(lanes):
    killed = []

    def kill():
        while not killed:
            for slot in lanes._slots:
                if slot.jobs and slot.client.facts.done():
                    os.kill(slot.client.process.pid, signal.SIGKILL)
                    killed.append(slot.spec.name)
                    break
            time.sleep(0.02)

    thread = threading.Thread(target=kill)
    thread.start()
    first, second = judged(lanes, SOURCE, WRONG)
    thread.join()
    assert (first.verdict.outcome, second.verdict.outcome) == ("correct", "wrong")
    assert lanes.notes == [f"{killed[0]} died and is begun again; its jobs run once more"]


def kills(lanes, name, how, stop):
    """Does this to every lane's process that has a job about a kernel of this name."""
    done = []
    while not stop.is_set():
        for slot in lanes._slots:
            client = slot.client
            about = [job.subject.name for job in slot.jobs]
            if name in about and client.facts.done() and client.process.pid not in done:
                os.kill(client.process.pid, how)
                done.append(client.process.pid)
        time.sleep(0.02)
    assert len(done) == 2


def test_a_kernel_of_which_two_lanes_die_is_crashed_and_those_beside_it_are_not(lanes):
    stop = threading.Event()
    thread = threading.Thread(target=kills, args=(lanes, "k1", signal.SIGKILL, stop))
    thread.start()
    wider = SOURCE.replace("BLOCK=256", "BLOCK=512").replace("total, 256", "total, 512")
    beside, killer, other = judged(lanes, SOURCE, wider, WRONG)
    stop.set()
    thread.join()
    assert (beside.verdict.outcome, other.verdict.outcome) == ("correct", "wrong")
    assert killer.verdict.outcome is Outcome.CRASHED
    assert "died each of 2 times, at last with nothing else in it" in killer.verdict.reason
    assert "killed by signal 9" in killer.verdict.reason


def test_a_lane_that_is_silent_is_ended_and_told(problem, tmp_path):
    specs = [
        LaneSpec.of(problem, modelled(), tmp_path / name, name=name, seed=3)
        for name in ("one", "two")
    ]
    executor = Lanes(
        specs,
        lambda spec: LaneProcess(spec, silent_s=15.0),
        gpu="H200",
        measures=False,
        usage=Usage(),
    )
    stop = threading.Event()
    thread = threading.Thread(target=kills, args=(executor, "k0", signal.SIGSTOP, stop))
    thread.start()
    try:
        (hung,) = judged(executor, SOURCE)
    finally:
        stop.set()
        thread.join()
        executor.close()
    assert hung.verdict.outcome is Outcome.TIMEOUT
    assert "it was silent for 15 s" in hung.verdict.reason


def test_a_job_that_a_lane_does_not_end_is_given_up(problem, tmp_path):
    spec = LaneSpec.of(problem, modelled(), tmp_path, name="one", seed=3)
    lanes = Lanes(
        [spec],
        lambda spec: LaneProcess(spec, job_s=0.05),
        gpu="H200",
        measures=False,
        usage=Usage(),
    )
    (hung,) = judged(lanes, SOURCE)
    lanes.close()
    assert hung.verdict.outcome is Outcome.TIMEOUT


def test_an_error_of_a_job_is_the_one_that_it_is_without_lanes(lanes):
    job = ProfileJob(subject=Subject(name="k", source="def kernel_function(x): return y"))
    with pytest.raises(KernelError):
        lanes.run(job)


def test_closing_stops_what_goes_on_and_leaves_no_process(lanes):
    raised = []

    def judge():
        try:
            lanes.run(JudgeJob(subject=Subject(name="k", source=SOURCE)))
        except Stopped as error:
            raised.append(error)

    thread = threading.Thread(target=judge)
    thread.start()
    time.sleep(1)
    before = processes(lanes)
    lanes.close()
    thread.join(10)
    assert raised
    assert all(process.poll() is not None for process in before)


def test_a_lane_ends_with_the_process_that_began_it(problem, tmp_path):
    script = """
import sys, time
from pathlib import Path
from beamsearch.executor import lane_client
from beamsearch.executor.client import LOG, LaneSpec
from beamsearch.executor.lane_client import LaneProcess
from beamsearch.gpu.machine import modelled
from beamsearch.problem.problem import read_problem
problem = read_problem(Path(sys.argv[1]))
lane = LaneProcess(LaneSpec.of(problem, modelled(), Path(sys.argv[2]), name="one", seed=3))
lane.facts.result()
print(lane.process.pid, flush=True)
time.sleep(600)
"""
    begun = subprocess.Popen(
        [sys.executable, "-c", script, FOLDER / "problem.py", tmp_path / "lane"],
        env=os.environ | {"PYTHONPATH": PYTHONPATH},
        stdout=subprocess.PIPE,
        text=True,
    )
    pid = int(begun.stdout.readline())
    assert Path(f"/proc/{pid}").exists()
    begun.kill()
    begun.wait()
    until = time.monotonic() + 30
    while (Path(f"/proc/{pid}").exists() or orphans(tmp_path)) and time.monotonic() < until:
        time.sleep(0.1)
    assert not Path(f"/proc/{pid}").exists()
    assert not orphans(tmp_path)


def test_the_folder_of_a_run_is_hidden_from_the_candidates_of_its_lanes(tmp_path):
    lane = tmp_path / "run" / ".scratch" / "lane-0"
    assert ForkServers(lane, interpreter=False)._hidden == [str(lane), str(tmp_path / "run")]
    assert ForkServers(tmp_path / "lane", interpreter=False)._hidden == [str(tmp_path / "lane")]


def test_a_process_that_stands_by_becomes_the_lane_and_a_dead_one_is_passed_over(problem, tmp_path):
    machine = modelled()
    lane_client.stand_by("")
    taken = lane_client._standing_by[""]
    lane_client.stand_by("")
    assert lane_client._standing_by[""] is taken, "one waits already"
    lane = LaneProcess(LaneSpec.of(problem, machine, tmp_path, name="a", seed=1, gpu_uuid=None))
    try:
        assert lane.process is taken
        assert lane.facts.result(60).gpu == machine.gpu.name
        assert (tmp_path / LOG).is_file()
    finally:
        lane.close()
    lane_client.stand_by("")
    left = lane_client._standing_by[""]
    left.kill()
    left.wait()
    again = LaneProcess(LaneSpec.of(problem, machine, tmp_path, name="b", seed=1, gpu_uuid=None))
    try:
        assert again.process.pid not in (taken.pid, left.pid)
        assert again.facts.result(60).gpu == machine.gpu.name
    finally:
        again.close()


def test_a_process_that_stands_by_ends_with_who_began_it():
    began = "from beamsearch.executor import lane_client as c; c.stand_by('')"
    script = f"{began}; print(c._standing_by[''].pid)"
    pid = int(subprocess.run([sys.executable, "-c", script], capture_output=True, text=True).stdout)
    deadline = time.monotonic() + 30
    while Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not Path(f"/proc/{pid}").exists()

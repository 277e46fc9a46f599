"""Kernels captured and compiled by tasks of Ray, on real nodes of its own processes."""

import os
import pickle
import signal
import threading
import time
from pathlib import Path

import pytest

from beamsearch.executor import ray_captures
from beamsearch.executor.client import GIVEN, LaneSpec
from beamsearch.executor.cluster import Cluster
from beamsearch.executor.ray_captures import CaptureSpec, RayCaptures
from beamsearch.gpu.machine import modelled
from beamsearch.gpu.usage import Usage
from beamsearch.judge.arguments import meta_arguments
from beamsearch.judge.capture.ahead import Captures, Means
from beamsearch.judge.capture.forms import moved
from beamsearch.judge.rejection import Log, Rejected
from beamsearch.judge.sandbox.processes import ForkServers
from beamsearch.judge.sources import write_source
from beamsearch.problem.problem import read_problem
from beamsearch.records.verdict import Outcome, Stage
from tests import ROOT
from tests.cluster import begun
from tests.processes import children

PROBLEM = ROOT / "tests" / "scaling" / "problem.py"
SOURCE = (PROBLEM.parent / "input_kernel.py").read_text()
BROKEN = SOURCE.replace("tl.load(", "tl.lode(", 1)
SLOW = "import time\ntime.sleep(8)\n" + SOURCE


def on_ray(test):
    """Marks of what needs Ray."""
    return pytest.mark.slow(pytest.mark.ray(pytest.mark.timeout(400)(test)))


def spec(folder, **more):
    return LaneSpec.of(read_problem(PROBLEM), modelled(), folder, name="lane", seed=3, **more)


def test_all_lanes_of_a_run_have_one_place_to_capture_for_them(tmp_path):
    gpu = modelled().gpu
    lanes = [
        spec(tmp_path / "run" / ".scratch" / name, shared_by=n, gpu_uuid=uuid)
        for n, (name, uuid) in enumerate((("a", "GPU-1"), ("b", "GPU-2")), 1)
    ]
    one, other = (CaptureSpec.of(lane, gpu) for lane in lanes)
    assert one == other and one.lane.gpu_uuid == GIVEN
    assert Path(one.lane.scratch) == tmp_path / "run" / ".scratch"
    assert CaptureSpec.of(spec(tmp_path), gpu).lane.gpu_uuid is None


def test_a_rejection_is_the_same_on_another_machine():
    told = Rejected(Outcome.WRONG, Stage.COMPILE, "why", raised=True, work=2.0)
    again = pickle.loads(pickle.dumps(told))
    assert vars(again) == vars(told) and str(again) == str(told)


@pytest.mark.parametrize("answers", [True, False])
def test_what_is_captured_elsewhere_is_not_captured_here(tmp_path, answers):
    asked = []
    gpu, servers = modelled().gpu, ForkServers(tmp_path, interpreter=False)
    meta = meta_arguments(read_problem(PROBLEM))
    here = Captures(servers, gpu, meta, Usage(), 1, means=Means(1))
    captured, _ = here.captured(SOURCE, tmp_path, Log())

    path = write_source(tmp_path, SOURCE)

    def apart(source):
        asked.append(source)
        there = "/elsewhere/kernel.py"
        return (moved(captured, path, there), there) if answers else None

    there = Captures(servers, gpu, meta, Usage(), 1, means=Means(1, apart=apart))
    if answers:
        servers.close()  # nothing can be captured here any more
    try:
        found, _ = there.captured(SOURCE, tmp_path, Log())
        assert asked == [SOURCE]
        assert same(found, captured)
    finally:
        servers.close()
        for captures in (here, there):
            captures.close()


def same(one, other):
    """Whether two captures of a kernel came to the same plans and machine code."""
    return [(f.plan, f.compiled.profile.fingerprint, f.pins) for f in one.forms] == [
        (f.plan, f.compiled.profile.fingerprint, f.pins) for f in other.forms
    ]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    with begun(tmp_path_factory.mktemp("nodes")) as there:
        yield there


@pytest.fixture
def captures(nodes, tmp_path):
    """What captures on the cluster, and the cluster."""
    cluster = Cluster.at(nodes.address)
    cluster.serve(modelled().environment())
    yield RayCaptures(spec(tmp_path), cluster.not_for_captures(), modelled().gpu), cluster
    cluster.close()


@pytest.fixture
def local(tmp_path):
    """What captures here."""
    servers = ForkServers(tmp_path / "here", interpreter=False)
    (tmp_path / "here").mkdir()
    meta = meta_arguments(read_problem(PROBLEM))
    made = Captures(servers, modelled().gpu, meta, Usage(), 3, means=Means(1))

    def captured(source):
        return made.captured(source, tmp_path / "here", Log())

    yield captured
    servers.close()
    made.close()


@on_ray
def test_a_task_comes_to_what_this_machine_comes_to(captures, local):
    there, _ = captures
    found, path = there(SOURCE)
    here, own = local(SOURCE)
    assert path != own and not same(found, here) and same(moved(found, path, own), here)
    broken, _ = there(BROKEN)
    with pytest.raises(Rejected) as told:
        local(BROKEN)
    assert broken.rejection.reason == told.value.reason and "lode" in told.value.reason


@on_ray
def test_a_task_whose_machine_dies_is_done_on_another(captures, nodes, local, tmp_path):
    head = nodes.cluster.head_node.node_id
    there, answers = RayCaptures(spec(tmp_path), [head], modelled().gpu), []
    asked = threading.Thread(target=lambda: answers.append(there(SLOW)))
    asked.start()
    nodes.kill(node_of_task(nodes))
    asked.join()
    nodes.add()
    ((found, path),) = answers
    here, own = local(SLOW)
    assert same(moved(found, path, own), here)


def node_of_task(nodes):
    """The node, which is not the first, on which a task captures."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        for node in nodes.others:
            for info in node.all_processes["raylet"]:
                for pid in children(info.process.pid):
                    if b"ray::capture" in Path(f"/proc/{pid}/cmdline").read_bytes():
                        return node
        time.sleep(0.05)
    raise AssertionError("no task began on a node that may be killed")


@on_ray
def test_a_task_that_dies_twice_is_left_to_the_lane(captures, monkeypatch):
    there, _ = captures
    stop, killed = threading.Event(), set()

    def kill():
        while not stop.is_set():
            for entry in os.scandir("/proc"):
                if entry.name.isdigit():
                    try:
                        if b"ray::capture" in Path(entry.path, "cmdline").read_bytes():
                            os.kill(int(entry.name), signal.SIGKILL)
                            killed.add(entry.name)
                    except (FileNotFoundError, ProcessLookupError):
                        pass
            time.sleep(0.05)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        assert there(SLOW + "# again\n") is None
    finally:
        stop.set()
        killer.join()
    assert len(killed) >= 2
    monkeypatch.setattr(ray_captures, "LIMIT_S", 0.1)
    assert there(SLOW + "# once more\n") is None

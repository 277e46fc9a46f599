"""Runs on a small cluster of Ray: what hangs, and candidates that kill."""

import io
import os
import shutil
import signal
import threading
import time
from pathlib import Path

import pytest

from beamsearch.cli.display import PlainDisplay
from beamsearch.cli.doctor import look
from beamsearch.errors import UsageError
from beamsearch.executor.client import LaneSpec
from beamsearch.executor.cluster import Cluster
from beamsearch.executor.dispatch import subjects_of
from beamsearch.executor.lanes import Lanes
from beamsearch.executor.ray_lane import RayLane
from beamsearch.gpu.machine import modelled
from beamsearch.gpu.usage import Usage
from beamsearch.problem.problem import read_problem
from beamsearch.records.job import JudgeJob, Subject
from beamsearch.records.packed import opened_run
from beamsearch.records.trace import Trace
from beamsearch.records.verdict import Outcome
from beamsearch.run import run as runner
from beamsearch.run.steering import add_kernel
from beamsearch.settings import Settings
from tests import ROOT
from tests.cluster import begun
from tests.processes import children

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.timeout(600)]
PROBLEM = ROOT / "tests" / "scaling" / "problem.py"
SOURCE = (PROBLEM.parent / "input_kernel.py").read_text()
SETTINGS = {"rounds": 2, "workers": 2, "variants": 1, "seed": 7, "llm": "playbook"}
KILLS = {
    "itself": "os.abort()",
    "its fork server": "os.kill(os.getppid(), signal.SIGKILL)",
    "its actor": """
for entry in os.listdir("/proc"):
    if entry.isdigit() and b"ray::LaneActor" in open(f"/proc/{entry}/cmdline", "rb").read():
        os.kill(int(entry), signal.SIGKILL)
""".strip(),
}
"""What a candidate does as it is imported."""


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    with begun(tmp_path_factory.mktemp("nodes")) as there:
        yield there


def ran(folder, **settings):
    """A run's record and what it said. The problem's file is gone, as it is not on another
    machine."""
    log = io.StringIO()
    there = folder.with_name("problem") / "scaling"
    shutil.copytree(PROBLEM.parent, there)
    problem = read_problem(there / "problem.py")
    shutil.rmtree(there.parent)
    asked = Settings(**(SETTINGS | settings))
    record = runner.run(problem, asked, folder, kernel=SOURCE, observer=PlainDisplay(log))
    return record, log.getvalue()


def test_a_lane_that_hangs_is_ended_and_told(nodes, tmp_path):
    problem = read_problem(PROBLEM)
    cluster = Cluster.at(nodes.address)
    cluster.serve(modelled().environment())
    specs = [
        LaneSpec.of(problem, modelled(), tmp_path, name=name, seed=3) for name in ("one", "two")
    ]
    executor = Lanes(
        specs,
        lambda spec: RayLane(spec, cluster, silent_s=10.0),
        gpu="H200",
        measures=False,
        usage=Usage(),
        at_end=cluster.close,
    )
    stopped = []

    def stop():
        while not executor._closed:
            for slot in executor._slots:
                client = slot.client
                if slot.jobs and client.facts.done() and client.pid not in stopped:
                    os.kill(client.pid, signal.SIGSTOP)
                    stopped.append(client.pid)
            time.sleep(0.02)

    threading.Thread(target=stop, daemon=True).start()
    hung = executor.run(JudgeJob(subject=Subject(name="k", source=SOURCE)))
    executor.close()
    assert len(stopped) == 2
    assert hung.verdict.outcome is Outcome.TIMEOUT
    assert "it was silent for 10 s" in hung.verdict.reason
    until = time.monotonic() + 30
    while any(Path(f"/proc/{pid}").exists() for pid in stopped) and time.monotonic() < until:
        time.sleep(0.2)
    assert not any(Path(f"/proc/{pid}").exists() for pid in stopped)


def test_a_candidate_that_kills_changes_no_winner(nodes, tmp_path, monkeypatch):
    undisturbed, _ = ran(tmp_path / "undisturbed", ray=nodes.address, lanes=2)

    # Given a run with three kernels of a person, which kill as they are imported
    ran(tmp_path / "run", ray=nodes.address, lanes=2, rounds=1)
    for name, kill in KILLS.items():
        path = tmp_path / f"{name.replace(' ', '_')}.py"
        path.write_text(f'"""Kills {name}."""\nimport os, signal\n{kill}\n{SOURCE}')
        add_kernel(tmp_path / "run", path)

    # and the last two of them get out of their isolation
    killed = {"fork server": [], "actor": []}

    submit = RayLane.submit

    def submit_and_kill(lane, job):
        names = [subject.name for subject in subjects_of(job)]
        if "r2-p1" in names and not killed["fork server"]:
            killed["fork server"] += servers(lane.pid)
            for server in killed["fork server"]:
                os.kill(server, signal.SIGKILL)
        if "r2-p2" in names:
            os.kill(lane.pid, signal.SIGKILL)
            killed["actor"].append(lane.pid)
        return submit(lane, job)

    monkeypatch.setattr(RayLane, "submit", submit_and_kill)
    record, said = ran(tmp_path / "run", ray=nodes.address, lanes=2)
    assert killed["fork server"] and len(killed["actor"]) == 2
    assert said.count("died and is begun again") == 2
    judged = {c.name: c.verdict for c in Trace(tmp_path / "run").round_record(2).candidates}
    itself, server, actor = (judged[f"r2-p{number}"] for number in range(3))
    assert itself.outcome is Outcome.CRASHED
    # What it tried reached nothing, and a server that is killed is replaced.
    assert server.outcome is Outcome.DUPLICATE
    assert actor.outcome is Outcome.CRASHED
    assert "died each of 2 times, at last with nothing else in it" in actor.reason
    assert record.best == undisturbed.best
    kernels = [
        tmp_path / name / "optimized_kernel_beam_search.py" for name in ("run", "undisturbed")
    ]
    assert kernels[0].read_text() == kernels[1].read_text()


def servers(pid):
    """Processes of a lane that candidates are forked from."""
    return [
        child
        for child in children(pid)
        if b"sandbox.server" in Path(f"/proc/{child}/cmdline").read_bytes()
    ]


def test_a_node_that_is_not_as_the_runs_is_left_out(nodes, tmp_path):
    cluster = Cluster.at(nodes.address)
    try:
        other = modelled().environment().with_values(torch="2.0")
        with pytest.raises(UsageError, match="no machine can work on this run: .*torch .* there"):
            cluster.serve(other)
    finally:
        cluster.close()


def test_a_measured_run_is_not_begun_on_a_cluster_without_gpus(nodes, tmp_path):
    packed = opened_run(ROOT / "artifacts" / "playbook" / "36_RMSNorm").folder
    shutil.copytree(packed, tmp_path / "run")
    with pytest.raises(UsageError, match="measured on NVIDIA H200, and the cluster has no GPU"):
        runner.resume(
            tmp_path / "run",
            observer=PlainDisplay(io.StringIO()),
            limits={"ray": nodes.address, "rounds": 9},
        )


def test_doctor_says_what_each_machine_offers(nodes):
    lines = list(look(None, nodes.address))
    (head,) = [line for line in lines if line.what == "ray"]
    assert head.level == "ok" and "machines: 3; a run can use 3" in head.found
    there = [line for line in lines if line.what.startswith("node ") and "torch" in line.found]
    assert len(there) == 3 and all("no GPU, CUDA" in line.found for line in there)


def test_nothing_is_left(nodes):
    """Of all the above: no lane's folder, and no process in one."""
    until = time.monotonic() + 30
    while time.monotonic() < until and list(os.scandir("/tmp")) and _left():
        time.sleep(0.5)
    assert not _left()


def _left():
    return [entry.name for entry in os.scandir("/tmp") if entry.name.startswith("beamsearch-lane-")]

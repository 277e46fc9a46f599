"""A run on two lanes, which are real processes, leaves what a run on one leaves."""

import io
import os
import signal
import threading
import time

import pytest

from beamsearch.cli.display import PlainDisplay
from beamsearch.executor.dispatch import subjects_of
from beamsearch.gpu.machine import modelled
from beamsearch.problem.problem import read_problem
from beamsearch.records.trace import Trace
from beamsearch.run import place
from beamsearch.run import run as runner
from beamsearch.settings import Settings
from tests import ROOT
from tests.traces import differences

pytestmark = pytest.mark.slow
PROBLEM = ROOT / "tests" / "scaling" / "problem.py"
SETTINGS = Settings(rounds=2, workers=2, variants=2, seed=7, llm="playbook")


def ran(folder, lanes, monkeypatch, disturb=None):
    """A run's record and what it said. `disturb` is called with the executor, beside the run."""
    opened = runner.open_executor

    def open_executor(*given, **more):
        executor = opened(*given, **more)
        if disturb is not None:
            threading.Thread(target=disturb, args=(executor,), daemon=True).start()
        return executor

    with monkeypatch.context() as patched:
        patched.setattr(place, "find_machines", lambda *_: (modelled(),) * lanes)
        patched.setattr(runner, "open_executor", open_executor)
        log = io.StringIO()
        record = runner.run(
            read_problem(PROBLEM), SETTINGS, folder, kernel=None, observer=PlainDisplay(log)
        )
    return record, log.getvalue()


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone") / "run"
    with pytest.MonkeyPatch.context() as monkeypatch:
        ran(folder, 1, monkeypatch)
    return folder


def test_two_lanes_leave_the_trace_of_one(alone, tmp_path, monkeypatch):
    record, _ = ran(tmp_path / "run", 2, monkeypatch)
    assert differences(alone, tmp_path / "run") == []
    assert set(record.totals.lane.lanes) == {"lane 0", "lane 1"}


def test_lanes_that_are_killed_leave_the_trace_of_undisturbed_ones(alone, tmp_path, monkeypatch):
    killed = []

    def disturb(executor):
        """Ends a lane in the middle of a job, and another later; no kernel's twice."""
        met = set()
        while len(killed) < 2 and not executor._closed:
            time.sleep(0.5)
            for slot in executor._slots:
                about = {s.name for job in slot.jobs for s in subjects_of(job)}
                if about and not about & met and slot.client.facts.done():
                    os.kill(slot.client.process.pid, signal.SIGKILL)
                    killed.append(slot.spec.name)
                    met |= about
                    break

    _, said = ran(tmp_path / "run", 2, monkeypatch, disturb)
    assert killed and "died and is begun again" in said
    assert differences(alone, tmp_path / "run") == []


def test_a_candidate_that_takes_its_lanes_with_it_is_a_verdict_and_the_winner_stays(
    alone, tmp_path, monkeypatch
):
    before = Trace(alone)
    best = before.run_record().best
    slower = [c.name for c in before.round_record(2).candidates if c.verdict.correct]
    killer = next(name for name in slower if name not in (best, before.round_record(2).best))

    def disturb(executor):
        while not executor._closed:
            for slot in executor._slots:
                names = [job.subject.name for job in slot.jobs if hasattr(job, "subject")]
                if killer in names and slot.client.facts.done():
                    slot.client.process.kill()
                    slot.client.process.wait()
            time.sleep(0.01)

    record, _ = ran(tmp_path / "run", 2, monkeypatch, disturb)
    candidates = Trace(tmp_path / "run").round_record(2).candidates
    (verdict,) = [c.verdict for c in candidates if c.name == killer]
    assert verdict.outcome == "crashed"
    assert "died each of 2 times" in verdict.reason
    assert record.best == best

"""A suite that is killed goes on where it was; what fails is a row."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

from beamsearch.cli.display import PlainDisplay
from beamsearch.errors import ProblemError
from beamsearch.gpu import driver, environment
from beamsearch.gpu.environment import Device
from beamsearch.run.stop import StopToken
from beamsearch.settings import Settings
from beamsearch.suite import one_run, runs
from beamsearch.suite import places as suite_places
from beamsearch.suite.one_run import Task, run_apart
from beamsearch.suite.places import find_places
from beamsearch.suite.problems import files_of, unique_names
from beamsearch.suite.runs import run_suite
from kernel_profiling.gpus import find_gpu
from tests import PYTHONPATH
from tests.commands import beamsearch
from tests.llm.runs import PROBLEM
from tests.profiling.test_ncu import ends

SETTINGS = ("--rounds", "1", "--workers", "1", "--variants", "1", "--llm", "playbook")


@pytest.fixture
def folder(tmp_path):
    shutil.copytree(PROBLEM, tmp_path / "doubling")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "problem.py").write_text("x = (")
    (tmp_path / "all.txt").write_text("# ours\nbroken\n\ndoubling  # small\n")
    return tmp_path


def states(suite):
    return [entry["state"] for entry in json.loads((suite / "suite.json").read_text())["entries"]]


@pytest.mark.slow
def test_killed_in_mid_run_it_goes_on(folder):
    suite = folder / "suite"
    command = ("suite", "all.txt", "--output", "suite", *SETTINGS)
    where = {"cwd": folder, "CUDA_VISIBLE_DEVICES": ""}
    # Given a suite that is killed when a run has its first round
    process = subprocess.Popen(
        [sys.executable, "-m", "beamsearch", *command],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": PYTHONPATH, "CUDA_VISIBLE_DEVICES": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    first_round = suite / "doubling" / "optimization_trace" / "round_0" / "round.json"
    until = time.monotonic() + 200
    while not first_round.is_file() and time.monotonic() < until and process.poll() is None:
        time.sleep(0.02)
    process.kill()
    said = process.communicate()[0]
    assert states(suite) == ["failed", "running"], said
    judged = first_round.stat().st_mtime_ns

    # When it is given with another list or other settings, then it says what differs
    for other, named in (
        (("suite", "doubling", "--output", "suite", *SETTINGS), "broken/problem.py is not asked"),
        ((*command, "--beam", "3"), "beam: 2 there, 3 asked"),
    ):
        done = beamsearch(*other, **where)
        assert done.returncode == 2 and named in done.stderr

    # When it is given again, then the run goes on
    done = beamsearch(*command, "--json", **where)
    assert done.returncode == 1, done.stderr
    assert states(suite) == ["failed", "finished"]
    assert first_round.stat().st_mtime_ns == judged
    told = json.loads(done.stdout)
    broken, doubling = told["rows"]
    assert "does not parse" in broken["notes"][0]
    assert doubling["source"] == "modelled" and doubling["candidates"] == 1
    assert doubling["baselines_ms"] == {} and told["figures"][0]["recommended"] is None
    assert (suite / "results.csv").read_text().count(",~") == 5

    # And what is finished is not run again, while limits may grow
    ended = (suite / "doubling" / "run.json").stat().st_mtime_ns
    done = beamsearch(*command, "--time-limit", "1h", **where)
    assert done.returncode == 1 and "broken begins" in done.stdout
    assert "doubling begins" not in done.stdout
    assert (suite / "doubling" / "run.json").stat().st_mtime_ns == ended


@pytest.mark.slow
def test_two_at_once_are_stopped_together_and_go_on_together(folder):
    shutil.copytree(PROBLEM, folder / "second")
    command = ("suite", "doubling", "second", "--at-once", "2", "--output", "both", *SETTINGS)
    process = subprocess.Popen(
        [sys.executable, "-m", "beamsearch", *command],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": PYTHONPATH, "CUDA_VISIBLE_DEVICES": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    begun = [folder / "both" / name / "run.json" for name in ("doubling", "second")]
    until = time.monotonic() + 200
    while not all(path.is_file() for path in begun) and time.monotonic() < until:
        time.sleep(0.02)
    assert states(folder / "both") == ["running", "running"]
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=100)[0]
    assert process.returncode == 130, said
    assert states(folder / "both") == ["running", "running"]

    done = beamsearch(*command, cwd=folder, CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 0, done.stderr
    assert states(folder / "both") == ["finished", "finished"]


def test_a_problem_that_ends_its_process_is_a_reason(tmp_path):
    problem, log = tmp_path / "problem.py", tmp_path / "log"
    problem.write_text("import os\nprint('the last', flush=True)\nos._exit(7)")
    task = Task(problem, Settings(), tmp_path / "run", log, PlainDisplay)
    outcome = run_apart(task, StopToken())
    assert outcome == ("failed", "its process ended with exit code 7: the last")


class Nobody:
    """Watches a suite, and may fail at it as a full disk would."""

    def __init__(self, *fails):
        self.fails = fails

    def begins(self, *_):
        pass

    def ended(self, number, *_):
        if number in self.fails:
            raise OSError("no space is left")


def of_two(folder, watcher, at_once=2, **given):
    paths = [folder / name / "problem.py" for name in ("broken", "doubling")]
    settings = Settings(llm="playbook", **given)
    (folder / "suite").mkdir()
    return run_suite(
        folder / "suite", paths, settings, watcher=watcher, observer=PlainDisplay, at_once=at_once
    )


def test_a_fault_with_one_problem_is_a_row_of_its_own(folder, monkeypatch):
    def flaws(path, _):
        if path.parent.name == "broken":
            raise OSError("no such disk")
        return []

    monkeypatch.setattr(runs, "flaws_of", flaws)
    monkeypatch.setattr(runs, "run_apart", lambda *_: ("finished", None))
    one, other = of_two(folder, Nobody()).entries
    assert (one.state, one.reason) == ("failed", "OSError: no such disk")
    assert other.state == "finished"


def test_so_many_run_at_once_as_were_asked_for_however_many_gpus(folder, monkeypatch):
    here = [
        SimpleNamespace(uuid=f"GPU-{n}", name="H100", device=n, gpu=find_gpu("h100"))
        for n in range(4)
    ]
    there = tuple(Device(other.device, other.name, other.uuid, 80 << 30) for other in here)
    going, most, seen = [], [], []

    def apart(task, _):
        going.append(task)
        most.append(len(going))
        seen.append(task.gpus)
        time.sleep(0.5)
        going.remove(task)
        return "finished", None

    monkeypatch.setattr(suite_places, "find_machines", lambda *_, **__: here)
    monkeypatch.setattr(runs, "devices", lambda: there)
    monkeypatch.setattr(runs, "flaws_of", lambda *_: [])
    monkeypatch.setattr(runs, "run_apart", apart)
    suite = of_two(folder, Nobody(), at_once=1, gpus="all")
    assert seen == [there, there]  # one at a time has all
    assert {entry.state for entry in suite.entries} == {"finished"} and max(most) == 1
    assert [find_places(Settings(gpus="all"), n)[0].at_once for n in (1, 6, None)] == [1, 6, 8]


@pytest.mark.parametrize("count", [1, 2])
def test_a_run_sees_its_gpus_alone_and_begins_on_one_at_once(monkeypatch, count):
    begun = []
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(environment, "_SEEN", [])
    monkeypatch.setattr(driver, "start_context", begun.append)
    monkeypatch.setattr(one_run, "stand_by", lambda *, interpreter: begun.append(interpreter))
    try:
        one_run._begin_on([Device(n, "H100", f"GPU-{n}", 80 << 30) for n in (5, 3)[:count]])
        assert [device.uuid for device in environment.devices()] == ["GPU-5", "GPU-3"][:count]
    finally:
        environment.devices.cache_clear()
    assert begun == ([False, 0] if count == 1 else [])


@pytest.mark.parametrize(("at_once", "sharing"), [(1, 1), (2, 2), (5, 2)])
def test_runs_share_the_cores_with_those_that_there_are_at_once(
    folder, monkeypatch, at_once, sharing
):
    found = []

    def apart(task, _):
        time.sleep(0.5)
        found.append(task.beside)
        return "finished", None

    monkeypatch.setattr(runs, "flaws_of", lambda *_: [])
    monkeypatch.setattr(runs, "run_apart", apart)
    of_two(folder, Nobody(), at_once=at_once)
    assert found == [sharing, sharing]


def test_no_run_goes_on_where_its_suite_cannot(folder, monkeypatch):
    stopped = []

    def apart(task, stop):
        if task.problem.parent.name == "doubling":
            until = time.monotonic() + 60
            while not stop.is_set() and time.monotonic() < until:
                time.sleep(0.01)
            stopped.append(stop.is_set())
        return "finished", None

    monkeypatch.setattr(runs, "flaws_of", lambda *_: [])
    monkeypatch.setattr(runs, "run_apart", apart)
    with pytest.raises(OSError, match="no space"):
        of_two(folder, Nobody(1))
    assert stopped == [True]


def test_an_exit_code_is_told_whoever_else_starts_a_process(tmp_path):
    problem, told = tmp_path / "problem.py", []
    problem.write_text("import os\nprint('it', flush=True)\nos._exit(7)")

    def one(number):
        log = tmp_path / f"{number}.log"  # what two print at once may stand in one line
        task = Task(problem, Settings(), tmp_path / f"{number}", log, PlainDisplay)
        told.append(run_apart(task, StopToken())[1])

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(40)))
    assert set(told) == {"its process ended with exit code 7: it"}


def test_an_audit_ends_with_whoever_asked_for_it(tmp_path):
    problem = tmp_path / "problem.py"
    problem.write_text(
        "import os, time\n"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n"
        "while True: time.sleep(0.01)"
    )
    code = (
        "from pathlib import Path\nfrom beamsearch.suite.audits import flaws_of\n"
        "from kernel_profiling.gpus import find_gpu\n"
        f"flaws_of(Path({str(problem)!r}), find_gpu('h200'))"
    )
    environment = os.environ | {"PYTHONPATH": PYTHONPATH, "XDG_CACHE_HOME": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", code], env=environment) as asked:
        until = time.monotonic() + 60
        while not (tmp_path / "pid").exists() and time.monotonic() < until:
            time.sleep(0.01)
        asked.kill()
    assert ends(tmp_path / "pid")


def test_a_list_names_problems_as_a_command_line_does(folder, monkeypatch):
    monkeypatch.chdir(folder)
    paths = [folder / name / "problem.py" for name in ("broken", "doubling")]
    assert files_of(["all.txt", "doubling", str(folder)], None) == paths
    (folder / "empty.txt").write_text("# nothing\n")
    with pytest.raises(ProblemError, match="names no problem"):
        files_of(["empty.txt"], None)


def test_every_problem_has_a_folder_of_its_own(tmp_path):
    files = [
        "level1/1_a.py",
        "level2/1_a.py",
        "x/level2/1_a.py",
        "p/b/problem.py",
        "q/b/problem.py",
    ]
    names = unique_names([tmp_path / file for file in files], ["logs"])
    assert names == ["1_a", "level2_1_a", "1_a_2", "b", "q_b"]
    assert unique_names([tmp_path / "logs.py"], ["logs"]) != ["logs"]

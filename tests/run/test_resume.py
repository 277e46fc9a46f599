"""A run that is stopped in any way, at any moment, ends as if nothing had happened."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from beamsearch.records.trace import Trace
from tests import PYTHONPATH, ROOT
from tests.traces import differences

KILLS = int(os.environ.get("BEAMSEARCH_KILLS", "1"))
"""Moments to kill at; 20 for the full proof (about ten minutes)."""
PROBLEM = ROOT / "tests" / "scaling"
OPTIONS = "--rounds 2 --workers 2 --variants 1 --beam 2 --seed 7 --tune 2 --llm playbook"
SETTINGS = OPTIONS.split()


def start(arguments, **more):
    command = [sys.executable, "-m", "beamsearch", *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": PYTHONPATH}
    return subprocess.Popen(
        command,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        **more,
    )


def finish(arguments):
    process = start(arguments)
    output = process.communicate(timeout=240)[0]
    return process.returncode, output


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    begun = time.monotonic()
    code, output = finish(["run", PROBLEM, *SETTINGS, "--output", folder])
    assert code == 0, output
    return folder, time.monotonic() - begun


def orphans(folder):
    """Processes that still work for a run: their command line or working folder names it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            where = str((process / "cwd").readlink())
        except OSError:
            continue
        if str(folder) in line or where.startswith(str(folder)):
            found.append(line)
    return found


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_killed_runs_end_like_the_undisturbed_one(undisturbed, tmp_path):
    folder, seconds = undisturbed
    moments = random.Random(2026)
    for number in range(KILLS):
        again = tmp_path / f"killed-{number}"
        process = start(["run", PROBLEM, *SETTINGS, "--output", again])
        time.sleep(moments.uniform(0.5, 0.95 * seconds))
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        deadline = time.monotonic() + 10
        while orphans(again) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert not orphans(again)
        started = (again / "run.json").is_file()
        code, output = finish(
            ["resume", again] if started else ["run", PROBLEM, *SETTINGS, "--output", again]
        )
        assert code == 0, output
        assert differences(folder, again) == []


@pytest.mark.slow
def test_ctrl_c_says_how_to_resume_and_loses_nothing(undisturbed, tmp_path):
    folder, _ = undisturbed
    again = tmp_path / "interrupted"
    process = start(["run", PROBLEM, *SETTINGS, "--output", again])
    deadline = time.monotonic() + 60
    while not list(again.glob("optimization_trace/round_1/workers/*/strategy.json")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    output = process.communicate(timeout=30)[0]
    assert process.returncode == 130
    assert f"python -m beamsearch resume {again}" in output
    assert "Traceback" not in output
    stopped = Trace(again).run_record()
    assert stopped.status == "stopped" and stopped.began < stopped.saved
    code, output = finish(["resume", again])
    assert code == 0, output
    resumed = Trace(again).run_record()
    assert resumed.began == stopped.began and resumed.saved > stopped.saved
    assert differences(folder, again) == []


@pytest.mark.slow
def test_other_settings_in_the_same_folder_are_named(undisturbed):
    folder, _ = undisturbed
    code, output = finish(["run", PROBLEM, *SETTINGS, "--seed", "8", "--output", folder])
    assert code == 2
    assert "seed: 7 there, 8 asked" in output
    code, output = finish(["run", "82", *SETTINGS, "--output", folder])
    assert code == 2
    assert "scaling there" in output

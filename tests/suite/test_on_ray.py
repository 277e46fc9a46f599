"""Six problems on three nodes of Ray leave what they leave on this machine, whatever dies."""

import json
import os
import subprocess
import sys
import threading
import time

import pytest

from tests import PYTHONPATH, ROOT
from tests.cluster import Nodes
from tests.traces import differences

pytestmark = [pytest.mark.slow, pytest.mark.ray, pytest.mark.timeout(900)]
SCALING = ROOT / "tests" / "scaling"
SETTINGS = (
    *("--rounds", "1", "--workers", "2", "--variants", "1"),
    *("--seed", "7", "--llm", "playbook"),
)
SIZES = [(4096, 8192), (2048, 8192), (4096, 4096), (8192, 2048), (1024, 16384), (8192, 8192)]
WHERE = {"ray", "lanes", "nodes"}
"""Keys of a record that say where it was made."""


@pytest.fixture(scope="module")
def problems(tmp_path_factory):
    """A folder with six small problems, and a list of them."""
    folder = tmp_path_factory.mktemp("problems")
    for number, (rows, columns) in enumerate(SIZES):
        own = folder / f"scaling_{number}"
        own.mkdir()
        text = (SCALING / "problem.py").read_text()
        text = text.replace("rows = 4096", f"rows = {rows}")
        (own / "problem.py").write_text(text.replace("columns = 8192", f"columns = {columns}"))
        (own / "input_kernel.py").write_text((SCALING / "input_kernel.py").read_text())
    return folder


def suite(problems, output, *more, meanwhile=lambda output: None):
    """What a suite of the six printed. `meanwhile` is called beside it."""
    paths = [str(problems / f"scaling_{number}") for number in range(len(SIZES))]
    words = ["suite", *paths, "--output", str(output), *SETTINGS, *more]
    threading.Thread(target=meanwhile, args=(output,), daemon=True).start()
    done = subprocess.run(
        [sys.executable, "-m", "beamsearch", *words],
        cwd=problems,
        env=os.environ | {"PYTHONPATH": PYTHONPATH, "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=800,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def alone(problems):
    """The suite without Ray."""
    suite(problems, problems / "alone", "--at-once", "2")
    return problems / "alone"


@pytest.fixture
def nodes(tmp_path):
    there = Nodes(tmp_path)
    yield there
    there.close()


def different(alone, other):
    """Files of the runs that differ, but for where and when they were made."""
    return {
        f"scaling_{number}": found
        for number in range(len(SIZES))
        if (
            found := differences(
                alone / f"scaling_{number}", other / f"scaling_{number}", unlike=WHERE
            )
        )
    }


def test_the_traces_are_those_without_ray(problems, alone, nodes, tmp_path):
    said = suite(problems, tmp_path / "suite", "--ray", nodes.address, "--lanes", "3")
    assert different(alone, tmp_path / "suite") == {}
    assert "scaling_0 begins on 1 lane" in said
    record = json.loads((tmp_path / "suite" / "scaling_0" / "run.json").read_text())
    there = record["environment"]["nodes"]
    assert len(there) == 3 and all(node["torch"] and not node["left_out"] for node in there)


def test_two_nodes_that_are_killed_change_nothing(problems, alone, nodes, tmp_path):
    killed = []

    def kill(output):
        """One node when the first runs are in their rounds, another a while later."""
        for begun in (2, 3):
            until = time.monotonic() + 400
            while time.monotonic() < until:
                rounds = list(output.glob("*/optimization_trace/round_0/round.json"))
                if len(rounds) >= begun:
                    break
                time.sleep(0.1)
            killed.append(nodes.others[0].node_id)
            nodes.kill(nodes.others[0])

    suite(
        problems,
        tmp_path / "suite",
        *("--ray", nodes.address, "--lanes", "3"),
        meanwhile=kill,
    )
    assert len(killed) == 2
    logs = "".join(path.read_text() for path in (tmp_path / "suite" / "logs").glob("*.log"))
    assert "died and is begun again" in logs
    assert different(alone, tmp_path / "suite") == {}

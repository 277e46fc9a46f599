"""A command that waits for its turn on the GPU, and whoever gives it."""

import subprocess
import sys
import time
from contextlib import contextmanager

import pytest

from profiling.ncu import Turn

COMMAND = """
import sys, time
from pathlib import Path
from beamsearch.judge.call import _my_turn
time.sleep(0.3)
if "early" in sys.argv:
    raise SystemExit(3)
got = _my_turn(Path(sys.argv[1]), Path(sys.argv[2]))
print(got, time.monotonic())
"""


class Gpu:
    """Notes when it was held."""

    def __init__(self):
        self.held_at = None

    @contextmanager
    def hold(self):
        self.held_at = time.monotonic()
        time.sleep(0.2)
        yield


def start(turn, *more):
    command = [sys.executable, "-c", COMMAND, str(turn.ready), str(turn.go), *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.fixture
def gpu():
    return Gpu()


@pytest.fixture
def turn(tmp_path, gpu):
    return Turn(tmp_path / "ready", tmp_path / "go", gpu.hold)


def test_the_gpu_is_taken_once_the_command_is_ready_and_not_before(turn, gpu):
    began = time.monotonic()
    with turn.pipe() as pipe, start(turn) as process:
        assert turn.wait(process, pipe, 60) == 0
        got, at = process.stdout.read().split()
    assert got == "True"
    assert began + 0.3 < gpu.held_at < gpu.held_at + 0.2 <= float(at)


def test_a_command_that_ends_early_holds_nothing(turn, gpu):
    with turn.pipe() as pipe, start(turn, "early") as process:
        assert turn.wait(process, pipe, 60) == 3
    assert gpu.held_at is None


def test_a_command_that_nobody_waits_for_any_more_ends_by_itself(turn, gpu):
    with turn.pipe():
        process = start(turn)
        while not turn.ready.exists():
            time.sleep(0.01)
    with process:
        assert process.stdout.read().startswith("False")


def test_one_that_is_never_ready_is_given_up(turn, gpu):
    with turn.pipe() as pipe:
        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        with pytest.raises(subprocess.TimeoutExpired):
            turn.wait(process, pipe, 0.2)
        process.kill()
        process.wait()
    assert gpu.held_at is None

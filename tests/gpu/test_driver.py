"""The driver started ahead: it costs whoever stands by no memory of a GPU, nor an error."""

import subprocess
import sys
from contextlib import contextmanager

import pytest
import torch

READY = """
import sys
from beamsearch.gpu.driver import start_driver
if "context" in sys.argv:
    import torch
    torch.zeros(1, device="cuda")
start_driver()
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def standing_by(*words):
    command = [sys.executable, "-c", READY, *words]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, **pipes, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        yield


def test_a_machine_without_a_driver_needs_none():
    with standing_by():
        pass


@pytest.mark.gpu
def test_it_takes_no_memory_of_the_gpu():
    free, _ = torch.cuda.mem_get_info()
    with standing_by():
        assert free - torch.cuda.mem_get_info()[0] < 16 << 20
    with standing_by("context"):  # which would be seen
        assert free - torch.cuda.mem_get_info()[0] > 100 << 20

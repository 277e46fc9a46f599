"""The driver and a context started ahead: who stands by has no memory of a GPU, nor an error."""

import subprocess
import sys
from contextlib import contextmanager

import pytest
import torch

READY = """
import sys, threading
from beamsearch.gpu.driver import start_context, start_driver
if "context" in sys.argv:
    import torch
    torch.zeros(1, device="cuda")
start_driver()
if "ahead" in sys.argv:
    start_context(0)
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join()
print("ready", flush=True)
sys.stdin.read()
"""


@contextmanager
def standing_by(*words):
    command = [sys.executable, "-c", READY, *words]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, **pipes, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        yield
        assert "Traceback" not in process.communicate()[1]  # of a thread, too


@pytest.mark.parametrize("words", [(), ("ahead",)])
def test_a_machine_without_a_driver_needs_none(words):
    with standing_by(*words):
        pass


@pytest.mark.gpu
def test_it_takes_no_memory_of_the_gpu():
    free, _ = torch.cuda.mem_get_info()
    with standing_by():
        assert free - torch.cuda.mem_get_info()[0] < 16 << 20
    for word in ("context", "ahead"):  # which would be seen
        with standing_by(word):
            assert free - torch.cuda.mem_get_info()[0] > 100 << 20

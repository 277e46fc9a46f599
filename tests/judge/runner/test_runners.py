"""Runners that are started ahead, where no GPU gives a context."""

import time
from pathlib import Path

import pytest

from beamsearch.errors import BeamsearchError, Stopped
from beamsearch.judge.runner.client import Runners
from beamsearch.judge.runner.process import get_ready_to_compile
from beamsearch.judge.sandbox.clean_environment import QUEUES


@pytest.fixture
def runners(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    made = Runners(0, 1 << 20, tmp_path, cores=3)
    yield made
    made.close()


def until_ended(runner):
    deadline = time.monotonic() + 60
    while runner.alive:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def reason_of(open_one, *given):
    with pytest.raises(BeamsearchError, match="the GPU gives no context to the runner's") as told:
        open_one(*given)
    return str(told.value).partition("process: ")[2].partition("; see")[0]


def test_a_context_that_fails_ahead_is_tried_again_where_it_is_wanted(runners, tmp_path):
    ahead = runners.start()
    runners.open_soon()
    runners.open_soon()  # as a second worker does
    until_ended(ahead)  # no GPU
    assert [log.name for log in tmp_path.iterdir()] == ["runner-1.log"]
    reason = reason_of(runners.opened)
    assert (tmp_path / "runner-2.log").exists()  # in another process
    # Who got the first before it failed hears why it did, not that it is gone.
    assert reason_of(ahead.open, 0, 1 << 20) == reason


def test_baselines_have_one_runner_whoever_asks_for_it(runners):
    first = runners.start(compiles=True)
    runners.open_soon(compiles=True)
    assert runners.start(compiles=True) is first


THREADS = "TORCHINDUCTOR_COMPILE_THREADS"


@pytest.mark.parametrize(
    ("own", "of_kernels", "of_baselines"),
    [
        ({}, {QUEUES: "1"}, {QUEUES: "8", THREADS: "3"}),
        ({QUEUES: "2", THREADS: "5"},) * 2 + (None,),
    ],
)
def test_libraries_have_the_usual_queues_and_their_share_of_cores(
    tmp_path, monkeypatch, own, of_kernels, of_baselines
):
    for name in (QUEUES, THREADS):
        monkeypatch.delenv(name, raising=False)
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    runners = Runners(0, 1 << 20, tmp_path, cores=3)
    seen = []
    for compiles in (False, True):
        process = runners.start(compiles=compiles)._process
        environ = Path(f"/proc/{process.pid}/environ")
        until = time.monotonic() + 10
        while not (text := environ.read_text()) and time.monotonic() < until:
            time.sleep(0.01)  # it is empty for a moment after a process has begun
        lines = text.split("\0")
        told = dict(line.split("=", 1) for line in lines if line)
        seen.append({name: told[name] for name in (QUEUES, THREADS) if name in told})
    runners.close()
    assert seen == [of_kernels, own or of_baselines]


def test_torch_compile_gets_ready_as_far_as_this_torch_has_what_it_takes(monkeypatch):
    from torch._dynamo.utils import counters
    from torch._inductor import codecache
    from torch._inductor.runtime import triton_compat

    called = []
    monkeypatch.setattr(codecache, "torch_key", lambda: called.append("torch"))
    monkeypatch.setattr(triton_compat, "triton_key", lambda: called.append("triton"))
    traced = counters["frames"]["ok"]
    get_ready_to_compile()
    assert counters["frames"]["ok"] > traced
    assert called == ["torch", "triton"]
    monkeypatch.delattr(codecache, "torch_key")
    get_ready_to_compile()
    assert called == ["torch", "triton", "triton"]


def test_nothing_starts_once_they_are_closed(runners):
    started = [runners.start(), runners.start(compiles=True)]
    runners.open_soon()
    runners.close()
    assert not any(runner.alive for runner in started)
    assert runners.start() is None
    runners.open_soon()
    for open_one in (runners.opened, runners.for_baselines):
        with pytest.raises(Stopped, match="closed"):
            open_one()

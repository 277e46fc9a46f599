"""Runners that are started ahead, where no GPU gives a context."""

import time
from pathlib import Path

import pytest

from beamsearch.errors import BeamsearchError, Stopped
from beamsearch.judge.runner.client import Runners
from beamsearch.judge.sandbox.clean_environment import QUEUES


@pytest.fixture
def runners(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    made = Runners(0, 1 << 20, tmp_path)
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


@pytest.mark.parametrize(("own", "queues"), [(None, ["1", "8"]), ("2", ["2", "2"])])
def test_what_is_timed_besides_kernels_has_the_usual_queues(runners, monkeypatch, own, queues):
    if own:
        monkeypatch.setenv(QUEUES, own)
        runners.start().end()  # it was started before
    else:
        monkeypatch.delenv(QUEUES, raising=False)
    started = [runners.start(), runners.start(compiles=True)]
    environments = [Path(f"/proc/{one._process.pid}/environ").read_bytes() for one in started]
    assert [it.partition(f"{QUEUES}=".encode())[2][:1].decode() for it in environments] == queues


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

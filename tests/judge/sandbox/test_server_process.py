"""A server that stands by is the one that candidates come from, and outlives nobody."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from beamsearch.judge.sandbox import isolation, server_process
from beamsearch.judge.sandbox.processes import ForkServers
from beamsearch.judge.sandbox.protocol import send

BY_ITSELF = pytest.mark.skipif(isolation.may_wrap(), reason="bubblewrap is given its folder")


@pytest.fixture
def standing() -> Iterator[int]:
    server_process.stand_by(interpreter=False)
    there = server_process._standing_by["normal",]
    yield there.process.pid
    there.process.kill()
    there.process.wait()
    server_process._standing_by.clear()


@BY_ITSELF
def test_a_server_that_stands_by_is_taken_and_logs_where_others_do(
    standing: int, tmp_path: Path
) -> None:
    server_process.stand_by(interpreter=False)  # one is enough
    servers = ForkServers(tmp_path, interpreter=False)
    try:
        with servers.fork("capturing"):
            assert servers._process is not None and servers._process.pid == standing
        send(servers._controls["normal"], {"op": "no such thing"})
        assert servers._process.wait(20) == 1
        assert "KeyError" in (tmp_path / "server.log").read_text()
        with servers.fork("capturing"):
            assert servers._process.pid != standing
    finally:
        servers.close()


@BY_ITSELF
def test_a_server_that_died_standing_by_is_replaced(standing: int, tmp_path: Path) -> None:
    os.kill(standing, signal.SIGKILL)
    servers = ForkServers(tmp_path, interpreter=False)
    try:
        with servers.fork("capturing"):  # dead already when it is taken, or found to be then
            assert servers._process is not None and servers._process.pid != standing
    finally:
        servers.close()


@BY_ITSELF
def test_a_server_of_another_environment_is_not_taken(
    standing: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    servers = ForkServers(tmp_path, interpreter=False)
    try:
        servers.start()
        assert servers._process is not None and servers._process.pid != standing
    finally:
        servers.close()
    until = time.monotonic() + 60
    while Path(f"/proc/{standing}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
        assert time.monotonic() < until
        time.sleep(0.1)


@BY_ITSELF
def test_a_server_that_nobody_took_ends_with_whom_it_stood_by_for() -> None:
    program = (
        "import os; from beamsearch.judge.sandbox import server_process as s\n"
        "s.stand_by(interpreter=True); print(s._standing_by[('normal', 'interpreter')].process.pid)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    until = time.monotonic() + 60
    while Path(f"/proc/{int(done.stdout)}").exists():
        assert time.monotonic() < until
        time.sleep(0.1)

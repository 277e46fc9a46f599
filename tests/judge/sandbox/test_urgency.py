"""What compiles leaves the cores to what has the GPU."""

from __future__ import annotations

import os
from pathlib import Path
from typing import cast

import pytest

from beamsearch.judge.sandbox.processes import ForkServers, Role
from beamsearch.judge.sandbox.protocol import ToldError
from tests.processes import family

BY_SESSION = Path("/proc/sys/kernel/sched_autogroup_enabled")
"""Whether every session has a share of the cores of its own."""


def niceness(pid: int) -> set[int]:
    """Of a process and of its session, as far as sessions have one."""
    own = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[16])
    group = Path(f"/proc/{pid}/autogroup")
    if not (BY_SESSION.exists() and BY_SESSION.read_text().strip() == "1" and group.exists()):
        return {own}
    told = group.read_text().split()
    return {own, int(told[-1])} if told else {own}


@pytest.mark.parametrize(
    ("role", "has_gpu", "expected"),
    [
        ("capturing", True, 10),
        ("compiling", True, 10),
        ("calling", True, 0),
        ("compiling", False, 0),
    ],
)
def test_where_there_is_a_gpu_processes_of_which_there_are_many_give_way(
    tmp_path: Path, role: str, has_gpu: bool, expected: int
) -> None:
    (tmp_path / "sources" / "k").mkdir(parents=True)
    servers = ForkServers(tmp_path, interpreter=not has_gpu)
    try:
        servers.start()
        before = set(family(os.getpid()))
        with servers.fork(cast("Role", role), key="k") as process:
            with pytest.raises(ToldError):
                process.ask("nothing", 60.0)  # it is past its beginning
            new = set(family(os.getpid())) - before
            assert new
            assert set().union(*map(niceness, new)) == {expected}
    finally:
        servers.close()

"""Walls around candidates, tried from inside. Each test builds them in a process of its own."""

from __future__ import annotations

import ctypes
import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from beamsearch.executor.opened import lane
from beamsearch.gpu.machine import modelled
from beamsearch.judge.sandbox import isolation
from beamsearch.judge.sandbox.isolation import FILES, NAMES, NETWORK, USER, Plan
from beamsearch.judge.sandbox.processes import ForkServers, missing_here
from beamsearch.judge.sandbox.protocol import ToldError
from beamsearch.problem.problem import Problem
from kernel_profiling.gpus import find_gpu

SOMEBODY = 12345

root = pytest.mark.skipif(os.geteuid() != 0, reason="only root builds every wall")


def inside(
    plan: Plan,
    look: Callable[[], object],
    become: int | None = None,
    contained: bool = False,
) -> tuple[dict, object]:
    """Which walls were missing, and what `look` gave, from a child behind them."""
    reading, writing = os.pipe()
    pid, apart = isolation.fork_apart()
    if pid == 0:
        try:
            if become is not None:
                os.setgroups([])
                os.setresgid(become, become, become)
                os.setresuid(become, become, become)
            if contained:
                lose_namespaces()
            missing = isolation.build(plan, apart)
            os.write(writing, json.dumps([missing, look()]).encode())
        except BaseException as error:  # noqa: BLE001
            os.write(writing, json.dumps([{"error": str(error)}, None]).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        told = json.loads(pipe.read())
    os.waitpid(pid, 0)
    return told[0], told[1]


def lose_namespaces() -> None:
    """Be root as in a container: without CAP_SYS_ADMIN, so that nothing can be mounted."""
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    sets = (ctypes.c_uint32 * 6)()
    assert isolation._libc.capget(header, sets) == 0
    for number in range(3):
        sets[number] &= ~(1 << 21)
    assert isolation._libc.capset(header, sets) == 0


def can_write(*folders: Path | str) -> list[bool]:
    done = []
    for folder in folders:
        try:
            (Path(folder) / "tried").write_text("x")
            done.append(True)
        except OSError:
            done.append(False)
    return done


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder that other users may pass through, which they may not through pytest's own."""
    with TemporaryDirectory(prefix="walls-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    own = tmp_path / "scratch" / "processes" / "one"
    own.mkdir(parents=True)
    (tmp_path / "scratch" / "processes" / "another").mkdir()
    return Plan([str(own)], [], [str(tmp_path / "scratch")], isolation.FIRST_UID + 7, [])


@root
def test_only_its_own_folder_can_be_written(plan: Plan, tmp_path: Path) -> None:
    places = (plan.own[0], tmp_path, "/tmp", "/var/tmp", str(Path.cwd()))
    missing, wrote = inside(plan, lambda: can_write(*places))
    assert missing == dict.fromkeys(NAMES, "")
    assert wrote == [True, False, False, False, False]
    assert (Path(plan.own[0]) / "tried").stat().st_uid == plan.uid


@root
def test_it_does_not_see_the_run_that_its_lane_has_no_folder_in(plan: Plan, tmp_path: Path) -> None:
    run = tmp_path / "run"
    (run / ".scratch").mkdir(parents=True)
    (run / "run.json").write_text("{}")
    hidden = [*plan.hidden, str(run), str(tmp_path / "of another machine")]
    there = Plan(plan.own, plan.needed, hidden, plan.uid, plan.standing)
    missing, seen = inside(
        there, lambda: [[p.name for p in run.iterdir()], can_write(plan.own[0], run)]
    )
    assert missing == dict.fromkeys(NAMES, "")
    assert seen == [[], [True, False]]
    assert (run / "run.json").is_file()


@root
def test_it_sees_neither_processes_nor_other_candidates(plan: Plan) -> None:
    def look() -> object:
        processes = [path.name for path in Path("/proc").iterdir() if path.name.isdigit()]
        beside = [path.name for path in Path(plan.own[0]).parent.iterdir()]
        return [processes, os.getuid(), beside]

    assert inside(plan, look)[1] == [["1"], plan.uid, ["one"]]


@root
def test_it_reads_no_memory_of_the_judge_and_reaches_no_network(plan: Plan) -> None:
    judge = os.getpid()

    def look() -> object:
        done = []
        for attempt in (
            lambda: Path(f"/proc/{judge}/mem").read_bytes(),
            lambda: socket.socket().connect(("127.0.0.1", port)),
            lambda: os.setuid(0),
        ):
            try:
                attempt()
                done.append(True)
            except OSError:
                done.append(False)
        return done

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        missing, done = inside(plan, look)
    assert missing == dict.fromkeys(NAMES, "")
    assert done == [False, False, False]


@root
def test_a_judge_that_is_not_root_gets_walls_from_a_user_namespace(plan: Plan) -> None:
    os.chown(plan.own[0], SOMEBODY, SOMEBODY)
    missing, wrote = inside(plan, lambda: can_write(plan.own[0], "/var/tmp"), become=SOMEBODY)
    assert missing[USER] == "the judge itself is not root"
    if not missing[FILES]:  # systems may keep user namespaces to root
        assert wrote == [True, False]
    assert not missing[NETWORK] or missing[FILES]


@pytest.mark.slow
@root
def test_root_in_a_container_gives_candidates_of_a_verb_another_user(
    scale_problem: Problem,
) -> None:
    with lane(scale_problem, modelled()) as (_, scratch):
        own = scratch / "processes" / "one"
        own.mkdir(parents=True)
        plan = Plan([str(own)], [], [str(scratch)], isolation.FIRST_UID + 7, [])
        missing, looked = inside(
            plan, lambda: [os.getuid(), can_write(own, scratch)], contained=True
        )
    assert missing[FILES]
    assert missing[USER] == ""
    assert looked == [plan.uid, [True, False]]


def test_behind_bubblewrap_a_candidate_writes_into_its_own_cache_and_not_outside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolation.os, "geteuid", lambda: SOMEBODY)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    servers = ForkServers(scratch, interpreter=False)
    monkeypatch.undo()
    if not servers._wrapping:
        pytest.skip("bubblewrap does not work here")
    kernel = scratch / "writes.py"
    kernel.write_text(
        "import os, pathlib\ncache = pathlib.Path(os.environ['TRITON_CACHE_DIR'])\n"
        "(cache / 'made').write_text('x')\nprint(sorted(os.listdir(cache)))\n"
        f"pathlib.Path({str(tmp_path)!r}, 'rubbish').write_text('x')\n"
    )
    gpu = find_gpu("h200").model_dump(mode="json")
    try:
        with servers.fork("capturing", key="k") as process:
            with pytest.raises(ToldError, match="Read-only"):
                process.ask("load", 60.0, source=str(kernel), gpu=gpu)
            process.end()
            assert process.output.startswith("['made']")
    finally:
        servers.close()


@pytest.mark.slow
def test_what_is_missing_here_is_told_in_one_line() -> None:
    missing = missing_here()
    assert set(missing) <= set(NAMES)
    line = isolation.missing_in_words(missing)
    assert line.startswith("isolation lacks: " if missing else "isolation: whole")
    assert "\n" not in line

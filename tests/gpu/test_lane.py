"""One job a GPU at a time, also across processes."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

from beamsearch.gpu.lane import Lane


def test_threads_take_turns(tmp_path: Path) -> None:
    lane, inside, most = Lane("GPU-1", tmp_path), [0], [0]

    def work() -> None:
        for _ in range(50):
            with lane.held():
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == [1]


def test_who_does_not_wait_for_ever_is_told_that_it_has_no_lane(tmp_path: Path) -> None:
    mine, theirs = Lane("GPU-1", tmp_path), Lane("GPU-1", tmp_path)
    for other in (mine, theirs):  # kept by a thread of this executor, or by another one
        with other.held(0.0) as first:
            assert first
            with mine.held(0.2) as held:
                assert not held
    with mine.held(0.2) as held:
        assert held


def test_who_shares_it_has_it_with_others_that_do_and_with_nobody_else(tmp_path: Path) -> None:
    lanes = [Lane("GPU-1", tmp_path) for _ in range(3)]
    with lanes[0].held(0.0, shared=True) as first, lanes[1].held(0.0, shared=True) as second:
        assert first and second
        with lanes[2].held(0.2) as alone:
            assert not alone
    with lanes[2].held(0.0) as alone, lanes[0].held(0.2, shared=True) as first:
        assert alone and not first


def test_another_process_waits_until_the_holder_is_killed(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from beamsearch.gpu.lane import Lane\n"
        "with Lane('GPU-1', Path(sys.argv[1])).held():\n"
        "    print('held', flush=True); time.sleep(600)\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "held\n"
    entered = threading.Event()

    def enter() -> None:
        with Lane("GPU-1", tmp_path).held():
            entered.set()

    waiter = threading.Thread(target=enter)
    waiter.start()
    assert not entered.wait(0.3)
    with Lane("GPU-2", tmp_path).held():
        pass  # another GPU is another lane
    holder.kill()
    holder.wait()
    assert entered.wait(5)
    waiter.join()

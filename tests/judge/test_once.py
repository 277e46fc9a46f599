"""What several processes of a machine need is worked out by one, whatever becomes of it."""

import os
import subprocess
import sys
import threading
import time

import pytest

from beamsearch.judge.once import OncePerMachine

WORKER = """
import os, sys, time
from pathlib import Path
from beamsearch.judge.once import OncePerMachine

folder, seconds = Path(sys.argv[1]), float(sys.argv[2])

def make():
    with (folder / "made").open("a") as made:
        made.write(f"{os.getpid()}\\n")
    print("making", flush=True)
    time.sleep(seconds)
    return {"by": os.getpid()}

print(OncePerMachine(folder).get("key", make)["by"], flush=True)
"""


def begun(folder, seconds):
    told = [sys.executable, "-c", WORKER, str(folder), str(seconds)]
    return subprocess.Popen(told, stdout=subprocess.PIPE, text=True)


def test_one_of_several_processes_works_it_out_and_all_have_it(tmp_path):
    workers = [begun(tmp_path, 0.5) for _ in range(3)]
    said = [worker.communicate(timeout=60)[0].split() for worker in workers]
    makers = (tmp_path / "made").read_text().split()
    assert len(makers) == 1
    assert {words[-1] for words in said} == set(makers)


def test_who_is_killed_over_it_leaves_it_to_the_next(tmp_path):
    first = begun(tmp_path, 600)
    assert first.stdout.readline() == "making\n"
    waits = begun(tmp_path, 0)
    time.sleep(1)
    assert waits.poll() is None
    first.kill()
    assert waits.communicate(timeout=60)[0].split()[-1] == str(waits.pid)
    first.wait()


def test_a_failure_is_raised_and_tried_again(tmp_path):
    once = OncePerMachine(tmp_path)
    with pytest.raises(ZeroDivisionError):
        once.get("key", lambda: 1 // 0)
    assert once.get("key", lambda: 1) == 1
    assert once.get("key", lambda: 2) == 1


def test_what_cannot_be_kept_is_worked_out_by_each(tmp_path):
    (tmp_path / "key.draft").mkdir()  # nothing can be written there
    once = OncePerMachine(tmp_path)
    assert [once.get("key", lambda n=n: n) for n in (1, 2)] == [1, 2]


def test_threads_of_one_process_wait_for_each_other_too(tmp_path):
    made = []

    def make():
        time.sleep(0.2)
        made.append(os.getpid())
        return 1

    once = OncePerMachine(tmp_path)
    threads = [threading.Thread(target=once.get, args=("key", make)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1

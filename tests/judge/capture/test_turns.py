"""What somebody waits for is captured before what was only begun ahead."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from beamsearch.errors import Stopped
from beamsearch.gpu.machine import modelled
from beamsearch.gpu.usage import Usage
from beamsearch.judge.arguments import meta_arguments
from beamsearch.judge.capture.ahead import Captures, Means
from beamsearch.judge.capture.turns import Turns
from beamsearch.judge.once import OncePerMachine
from beamsearch.judge.rejection import Log
from beamsearch.judge.sandbox.processes import ForkServers
from beamsearch.judge.sources import source_key, write_source
from beamsearch.records.file_lock import in_turn
from beamsearch.records.job import Subject


class Users:
    """Threads that take a place each, and keep it until they are told to give it up."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self.had: list[str] = []
        self._over: dict[str, threading.Event] = {}
        self._threads: list[threading.Thread] = []

    def begin(self, name: str) -> None:
        """One more, which waits or has its place when this returns."""
        self._over[name] = threading.Event()
        thread = threading.Thread(target=self._take, args=(name,))
        self._threads.append(thread)
        thread.start()
        self.until(lambda: name in self.had or name in self._turns._waiting)

    def _take(self, name: str) -> None:
        with self._turns.taken(name) as leave:
            self.had.append(name)
            self._over[name].wait()
            leave()
            leave()  # what was given up is not given up again

    def end(self, name: str) -> None:
        self._over[name].set()

    @staticmethod
    def until(there) -> None:
        deadline = time.monotonic() + 10
        while not there():
            assert time.monotonic() < deadline
            time.sleep(0.002)


def test_those_that_are_wanted_come_first_in_the_order_in_which_they_were():
    turns = Turns(1)
    users = Users(turns)
    for name in "abcde":
        users.begin(name)
    for name in "dcd":
        turns.want(name)
    assert users.had == ["a"]
    for number, name in enumerate("adcbe", start=1):
        users.until(lambda number=number: len(users.had) == number)
        assert users.had[-1] == name
        users.end(name)


def test_as_many_have_a_place_as_there_are():
    users = Users(Turns(2))
    for name in "abcd":
        users.begin(name)
    assert users.had == ["a", "b"]
    users.end("b")
    users.until(lambda: len(users.had) == 3)
    time.sleep(0.05)
    assert users.had == ["a", "b", "c"]
    for name in "acd":
        users.end(name)
    users.until(lambda: len(users.had) == 4)


def test_a_place_is_there_again_after_an_error():
    turns = Turns(1)
    with pytest.raises(OSError, match="the disk"), turns.taken("a"):
        raise OSError("the disk")
    users = Users(turns)
    users.begin("b")
    assert users.had == ["b"]
    users.end("b")


def test_the_next_is_captured_while_one_compiles(servers, scale_problem, monkeypatch):
    source = (scale_problem.path.parent / "input_kernel.py").read_text()
    compiling, go_on = [], threading.Event()
    compile_forms = Captures._compiled_forms

    def slow(self, plans):
        compiling.append(plans)
        assert go_on.wait(60)
        return compile_forms(self, plans)

    monkeypatch.setattr(Captures, "_compiled_forms", slow)
    captures = Captures(
        servers, modelled().gpu, meta_arguments(scale_problem), Usage(), 1, means=Means(2)
    )
    try:
        subjects = [Subject(name=f"k{n}", source=f"{source}\n# slow {n}\n") for n in range(6)]
        captures.prepare(subjects, servers._scratch)
        Users.until(lambda: len(compiling) == 2 and len(captures._turns._waiting) == 2)
        time.sleep(0.3)  # two compile, two more are captured and wait for a core
        assert len(compiling) == 2 and len(captures._turns._waiting) == 2
        go_on.set()
        for subject in subjects:
            assert captures.captured(subject.source, servers._scratch, Log())[0].forms
    finally:
        go_on.set()
        captures.close()


def test_a_lane_that_waits_for_anothers_capture_keeps_no_place(servers, scale_problem, tmp_path):
    source = (scale_problem.path.parent / "input_kernel.py").read_text()
    known, wanted = (f"{source}\n# {word}\n" for word in ("known", "wanted"))
    captures = Captures(
        servers,
        modelled().gpu,
        meta_arguments(scale_problem),
        Usage(),
        1,
        means=Means(1, once=OncePerMachine(tmp_path)),
    )
    try:
        with ThreadPoolExecutor(1) as pool, in_turn(tmp_path / f"{source_key(known)}.lock"):
            # As another lane has it, for long.
            captures.prepare([Subject(name="known", source=known)], servers._scratch)
            judged = pool.submit(captures.captured, wanted, servers._scratch, Log())
            assert judged.result(60)[0].forms
        assert captures.captured(known, servers._scratch, Log())[0].forms
    finally:
        captures.close()


def test_nobody_forks_once_all_is_closed(tmp_path):
    servers = ForkServers(tmp_path, interpreter=False)
    servers.start()
    servers.close()
    with pytest.raises(Stopped):
        servers.fork("capturing", key="k")
    assert not (tmp_path / "processes").exists()


def test_a_kernel_that_is_judged_passes_those_begun_ahead(servers, scale_problem, tmp_path):
    source = (scale_problem.path.parent / "input_kernel.py").read_text()
    sources = [f"{source}\n# {number}\n" for number in range(12)]
    captures = Captures(
        servers, modelled().gpu, meta_arguments(scale_problem), Usage(), 1, means=Means(1)
    )
    try:
        subjects = [Subject(name=f"k{n}", source=text) for n, text in enumerate(sources)]
        captures.prepare(subjects, servers._scratch)
        captures.captured(sources[-1], servers._scratch, Log())
        others = [
            captures.begin(write_source(servers._scratch, text), source_key(text))
            for text in sources[:-1]
        ]
        assert sum(other.done() for other in others) <= 6
        assert all(len(other.result().forms) == 1 for other in others)
    finally:
        captures.close()

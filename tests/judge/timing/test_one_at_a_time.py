"""Subjects that do not fit on a GPU all at once have its memory in turn."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
import torch

from beamsearch.judge.rejection import Rejected
from beamsearch.judge.room import Room
from beamsearch.judge.timing import measure, timing
from beamsearch.records.job import Subject
from beamsearch.records.verdict import Outcome, Stage

NAMES = ["eager", "compile", "max_autotune"]


class Gpu:
    """Memory for so many bound subjects; `is_told` says so where there is too little room."""

    def __init__(self, room: int, *, is_told: bool, in_runner: bool = True) -> None:
        self.room, self.is_told, self.in_runner = room, is_told, in_runner
        self.bound: set[str] = set()
        self.most = 0
        self.ended = 0
        self.begun: list[str] = []
        self.shares: dict[tuple[str, bool], float] = {}
        """Of each subject's timed calls, with and without a graph, how many are compared."""

    def begin(self, replay: measure.Replay, *_: object) -> None:
        assert replay.plan not in self.bound
        self.begun.append(replay.plan)

    def bind(self, replay: measure.Replay, *_: object) -> float:
        self.bound.add(replay.plan)
        self.most = max(self.most, len(self.bound))
        if len(self.bound) > self.room:
            if self.in_runner:
                reason = "no memory"
                raise Rejected(Outcome.CRASHED, Stage.TIMING, reason, short_of_memory=True)
            raise torch.OutOfMemoryError
        return 1.0

    def runner(self) -> SimpleNamespace:
        def end() -> None:
            self.bound.clear()
            self.ended += 1

        def drop(name: str) -> None:
            self.bound.discard(name.partition(":")[0])

        def load(name: str, *_: object) -> measure.Replay:
            return measure.Replay(runner, name)

        runner = SimpleNamespace(alive=True, ask=lambda *_, **__: {}, end=end, drop=drop, load=load)
        return runner

    @property
    def is_crowded(self) -> bool:
        return self.is_told and len(self.bound) >= self.room


class Visit:
    """What a comparison wants of its stay."""

    gpu_uuid = ""
    problem = None
    flush_ms = 0.1

    def __init__(self, gpu: Gpu) -> None:
        self.gpu = gpu

    @property
    def room(self) -> Visit:
        return self

    @property
    def is_crowded(self) -> bool:
        return self.gpu.is_crowded

    stays_crowded = Room.stays_crowded

    def measurement(self, samples: Sequence[measure.Sample], *_: object) -> int:
        return len(samples)


@pytest.fixture
def compare(monkeypatch: pytest.MonkeyPatch):
    def run(gpu: Gpu, *kernels: str):
        monkeypatch.setattr(measure, "bind", gpu.bind)
        monkeypatch.setattr(measure, "begin", gpu.begin)
        monkeypatch.setattr(measure, "prepare", gpu.bind)
        monkeypatch.setattr(measure, "gpu_state", lambda _: None)
        monkeypatch.setattr(measure, "problem_message", lambda _: {})
        monkeypatch.setattr(measure.Clocks, "believe", lambda *_: None)

        def time_calls(replay, _, count, share=0.0, *, plain=False):
            assert replay.plan in gpu.bound
            gpu.shares[replay.plan, plain] = share
            return [measure.Sample(1.0, 1.0)] * count

        monkeypatch.setattr(measure, "time_calls", time_calls)
        sets = SimpleNamespace(release=lambda **_: None, mend=lambda: None)
        timed = SimpleNamespace(shared=nullcontext(), sets=sets)
        monkeypatch.setattr(measure, "Comparison", SimpleNamespace)
        comparer = measure.Comparer(Visit(gpu), timed, gpu.runner, gpu.runner)
        subjects = [Subject(name=name, kind=name) for name in NAMES]
        subjects += [Subject(name=name, source="") for name in kernels]
        form = SimpleNamespace(plan=None, compiled=None)
        return comparer.run(subjects, dict.fromkeys(kernels, form))

    return run


def test_with_room_all_are_bound_at_once(compare):
    gpu = Gpu(room=3, is_told=True)
    found = compare(gpu)
    assert gpu.most == 3 and not gpu.bound
    assert gpu.begun == NAMES
    assert list(found.measurements) == NAMES and not found.failed


def test_results_of_kernels_are_compared_between_timed_calls(compare):
    gpu = Gpu(room=4, is_told=False)
    compare(gpu, "a")
    shares = {(name, plain): 0.0 for name in NAMES for plain in (False, True)}
    graphs = timing.checked_share(measure.ROUNDS * round(measure.TURN_MS))
    shares |= {("a", False): graphs, ("a", True): timing.checked_share(measure.ROUNDS)}
    assert gpu.shares == shares


@pytest.mark.parametrize("gpu", [Gpu(1, is_told=True), Gpu(2, is_told=True)])
def test_none_is_bound_beside_another_where_there_is_too_little_room(compare, gpu):
    found = compare(gpu)
    assert gpu.most == gpu.room and gpu.ended == 0
    assert list(found.measurements) == NAMES and not found.failed


@pytest.mark.parametrize(
    ("least_gib", "free_gib", "is_crowded"),
    [
        (1, 11, False),
        (1, 9, True),  # an eighth of the memory
        (5, 21, False),
        (5, 19, True),  # four times what the problem reads and writes
        (15, 41, False),  # half of the memory
        (15, 39, True),
    ],
)
def test_how_much_room_a_subject_is_to_find(monkeypatch, least_gib, free_gib, is_crowded):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free_gib << 30, 80 << 30))
    room = Room.__new__(Room)
    room._device, room._least_bytes = torch.device("cuda:0"), least_gib << 30
    assert room.is_crowded is is_crowded


@pytest.mark.parametrize("in_runner", [True, False])
def test_what_runs_out_of_memory_begins_again_one_at_a_time(compare, in_runner):
    gpu = Gpu(1, is_told=False, in_runner=in_runner)
    found = compare(gpu)
    assert gpu.ended == 1 and not gpu.bound
    assert list(found.measurements) == NAMES and not found.failed
    assert len({*found.measurements.values()}) == 1


def test_one_that_does_not_fit_alone_fails_or_is_an_error(compare):
    found = compare(Gpu(0, is_told=False))
    assert not found.measurements and set(found.failed) == set(NAMES)
    with pytest.raises(torch.OutOfMemoryError):
        compare(Gpu(0, is_told=False, in_runner=False))


def test_a_reference_first_runs_while_no_oracle_takes_memory(monkeypatch):
    """max-autotune dropped the library's convolution where the oracle had left it no memory to be
    tried in, and was three times as slow from then on."""
    done: list[str] = []

    def note(name: str):
        return lambda *_, **__: done.append(name)

    monkeypatch.setattr(timing, "bind", note("bind"))
    sets = SimpleNamespace(release=note("release"))
    timed = SimpleNamespace(shared=1, sets=sets, renew=note("renew"), expect=note("expect"))
    timing.begin(SimpleNamespace(time=note("call")), timed, 1.0)
    assert sorted(done[:3]) == ["bind", "release", "renew"] and done[3:] == ["call"]
    assert done.index("renew") < done.index("release")  # what held the oracle is given back

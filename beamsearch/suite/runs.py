"""Many problems run, each in its own folder, from wherever they stopped."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import IO, TYPE_CHECKING, Any, Protocol

from beamsearch.errors import Stopped, UsageError
from beamsearch.gpu.environment import devices
from beamsearch.proposer.factory import decided, make_proposer
from beamsearch.records.suite import Entry, Suite
from beamsearch.records.trace import Trace, read_record, write_record
from beamsearch.run.lock import folder_lock, stop_on_signal
from beamsearch.run.stop import StopToken
from beamsearch.settings import LIMITS, Settings, differences
from beamsearch.suite.audits import flaws_of
from beamsearch.suite.budget import Used, is_cut_short, settings_of_run, used_by_run
from beamsearch.suite.one_run import Outcome, Task, get_ready, run_apart
from beamsearch.suite.places import Place, Places, find_places, in_turn
from beamsearch.suite.problems import unique_names
from kernel_profiling.errors import one_line

if TYPE_CHECKING:
    from beamsearch.run.observer import Observer
    from kernel_profiling.gpus import Gpu

RECORD = "suite.json"
LOGS = "logs"
BESIDE = (RECORD, "results.csv", "report.html", LOGS, ".lock")
"""What stands beside the runs' folders."""
OF_WHOLE = ("time_limit_s", "max_cost")
"""Limits that are the suite's, not each run's."""
WAIT_S = 0.2
"""How often it is seen whether to stop."""


class Watcher(Protocol):
    """Sees what a suite does."""

    def begins(
        self, number: int, count: int, entry: Entry, settings: Settings, places: Sequence[Place]
    ) -> None:
        """A problem's run begins, or goes on, with these settings on these GPUs; `number` counts
        from 1."""

    def ended(self, number: int, count: int, entry: Entry) -> None:
        """A problem's run ended, or could not begin."""


def run_suite(
    folder: Path,
    paths: Sequence[Path],
    settings: Settings,
    *,
    watcher: Watcher,
    observer: Callable[[IO[str]], Observer],
    at_once: int | None = None,
) -> Suite:
    """Run problems in a folder, from the start or from what is there; a problem that fails is an
    entry with its reason. `observer` makes who watches a run and writes its log. `at_once`: runs at
    once, where it is not one, or two on each of several GPUs.

    Raises UsageError where the folder holds something else, EndpointError where nobody can be
    asked, Stopped after an interrupt.
    """
    places, machine = find_places(settings, at_once)
    get_ready()
    stop = StopToken()
    with folder_lock(folder), stop_on_signal(stop):
        suite = _open(folder, paths, settings)
        if suite.settings.llm.kind != "batch":
            make_proposer(suite.settings)
        runs = _Runs(
            folder,
            suite,
            gpu=machine.gpu,
            places=places,
            watcher=watcher,
            observer=observer,
            stop=stop,
        )
        runs.go()
    if stop.is_set():
        raise Stopped("stopped; give the same command again to go on")
    return runs.suite


def read_suite(folder: Path) -> Suite:
    """`suite.json` of a folder. Raises UsageError where there is none."""
    if not (folder / RECORD).is_file():
        raise UsageError(f"{folder} holds no suite (no {RECORD} in it)")
    return read_record(folder / RECORD, Suite)


def _open(folder: Path, paths: Sequence[Path], settings: Settings) -> Suite:
    """The suite that is there, with the limits that are asked now, or a new one. Raises UsageError
    where another one is there, naming the difference."""
    if not (folder / RECORD).is_file():
        if any(path.name not in (".lock", f".{RECORD}.partial") for path in folder.iterdir()):
            raise UsageError(f"{folder} is not empty and holds no suite; give another --output")
        names = unique_names(paths, BESIDE)
        entries = [Entry(name=n, path=str(p)) for n, p in zip(names, paths, strict=True)]
        return Suite(settings=decided(settings), entries=entries)
    there = read_suite(folder)
    if settings.llm.kind == "auto":
        settings = settings.thought_by(str(there.settings.llm))
    different = _of_lists([entry.path for entry in there.entries], [str(path) for path in paths])
    different += differences(there.settings, settings)
    if different:
        raise UsageError(
            f"{folder} holds another suite ({'; '.join(different)}); give another --output, or the "
            "same problems and settings to go on with it"
        )
    grown = [name for name in LIMITS if getattr(there.settings, name) != getattr(settings, name)]
    entries = [_opened_again(folder, entry, grown) for entry in there.entries]
    return Suite(settings=settings, entries=entries)


def _of_lists(there: Sequence[str], asked: Sequence[str]) -> list[str]:
    """What differs between two lists of problems."""
    gone = [path for path in there if path not in asked]
    new = [path for path in asked if path not in there]
    told = [f"{gone[0]} and {len(gone) - 1} more are not asked for"] if len(gone) > 1 else []
    told += [f"{gone[0]} is not asked for"] if len(gone) == 1 else []
    told += [f"{new[0]} and {len(new) - 1} more are not in it"] if len(new) > 1 else []
    told += [f"{new[0]} is not in it"] if len(new) == 1 else []
    return told or (["another order of the problems"] if list(there) != list(asked) else [])


def _opened_again(folder: Path, entry: Entry, grown: Sequence[str]) -> Entry:
    """An entry as it goes on. One that failed is tried again: its file, or the endpoint, may be
    mended. One that is finished goes on where its run is gone, where limits of each run changed, or
    where its share of the suite's ended it and that changed."""
    if entry.state == "failed":
        return entry.with_values(state="waiting", reason=None)
    if entry.state != "finished":
        return entry
    trace = Trace(folder / entry.name)
    if trace.run_file.is_file():
        of_runs = any(name not in OF_WHOLE for name in grown)
        if not (of_runs or (grown and is_cut_short(trace.run_record()))):
            return entry
    return entry.with_values(state="waiting")


@dataclass(frozen=True)
class _Going:
    """A run that goes on."""

    places: tuple[Place, ...]
    may_take: Used
    begun: float
    shared: bool
    """Whether another run is, or was, on a GPU of it meanwhile."""


class _Runs:
    """The runs of a suite, each in a process of its own, as many at once as there are places; the
    suite is on disk before and after each. Only `_run` is in a thread of its own."""

    def __init__(
        self,
        folder: Path,
        suite: Suite,
        *,
        gpu: Gpu,
        places: Places,
        watcher: Watcher,
        observer: Callable[[IO[str]], Observer],
        stop: StopToken,
    ) -> None:
        self.folder = folder
        self.suite = suite
        self.gpu = gpu
        self.places = places
        self.watcher = watcher
        self.observer = observer
        self.stop = stop
        self.used = [used_by_run(folder / entry.name) for entry in suite.entries]
        self.going: dict[int, _Going] = {}
        self.alone: set[int] = set()
        """Problems that failed beside another run on their GPU, to be tried with it their own."""
        self.ends: SimpleQueue[tuple[int, Outcome]] = SimpleQueue()

    def go(self) -> None:
        """All that are not finished: whoever had least so far first, else in their order."""
        write_record(self.folder / RECORD, self.suite)
        waiting = [n for n, entry in enumerate(self.suite.entries) if entry.state != "finished"]
        try:
            self._go_through(waiting)
        except Exception:  # such as a full disk: no run goes on that nobody watches
            self.stop.set()
            while self.going:
                self.going.pop(self.ends.get()[0])
            raise

    def _go_through(self, waiting: list[int]) -> None:
        while self.going or (waiting and not self.stop.is_set()):
            for number in in_turn(waiting, self.used):
                places = self._places(number, len(waiting))
                if places and not self.stop.is_set():
                    waiting.remove(number)
                    self._begin(number, places)
            if self.going:
                waiting += self._ended()

    def _places(self, number: int, waiting: int) -> tuple[Place, ...]:
        """Where a problem's run may begin now; nowhere where it has to wait."""
        given = ((run.places, other in self.alone) for other, run in self.going.items())
        runs = self.places.in_use(given)
        trace = Trace(self.folder / self.suite.entries[number].name)
        kind = trace.run_record().environment.gpu if trace.run_file.is_file() else None
        alone = number in self.alone
        return self.places.for_next(kind, runs, waiting, alone=alone, going=len(self.going))

    def _begin(self, number: int, places: tuple[Place, ...]) -> None:
        entry = self.suite.entries[number]
        promised = {other: going.may_take for other, going in self.going.items()}
        settings = settings_of_run(
            self.suite, number, self.used, promised=promised, at_once=self.places.at_once
        )
        if isinstance(settings, str):
            self._note(number, reason=settings)
            self.watcher.ended(number + 1, len(self.used), self.suite.entries[number])
            return
        where: dict[str, Any] = {}
        if places[0].uuid:
            # It sees no other GPUs than these.
            where = {"device": None, "gpus": "all" if len(places) > 1 else None}
        elif places[0].lanes:
            where = {"lanes": sum(place.lanes for place in places)}
        settings = Settings.model_validate(settings.model_dump() | where)
        self._note(number, state="running", reason=None)
        self.watcher.begins(number + 1, len(self.used), entry, settings, places)
        beside = [n for n, other in self.going.items() if set(other.places) & set(places)]
        for other in beside:
            self.going[other] = replace(self.going[other], shared=True)
        most = Used(settings.time_limit_s or 0.0, settings.max_cost or 0.0)
        self.going[number] = _Going(places, most, time.monotonic(), bool(beside))
        work = Thread(target=self._work, args=(number, entry, settings, places), daemon=True)
        work.start()

    def _ended(self) -> list[int]:
        """Wait a little for a run to end; its number, where it is to be tried again."""
        try:
            number, outcome = self.ends.get(timeout=WAIT_S)
        except Empty:
            return []
        going, entry = self.going.pop(number), self.suite.entries[number]
        seconds = round(entry.seconds + time.monotonic() - going.begun, 3)
        state, reason = outcome
        self.used[number] = used_by_run(self.folder / entry.name)
        again = state == "failed" and going.shared and number not in self.alone
        again = again and not self.stop.is_set()
        self.alone = {*self.alone, number} if again else self.alone - {number}
        self._note(number, state="waiting" if again else state, reason=reason, seconds=seconds)
        self.watcher.ended(number + 1, len(self.used), self.suite.entries[number])
        return [number] * again

    def _note(self, number: int, **values: object) -> None:
        self.suite = self.suite.with_entry(number, **values)
        write_record(self.folder / RECORD, self.suite)

    def _work(
        self, number: int, entry: Entry, settings: Settings, places: tuple[Place, ...]
    ) -> None:
        try:
            outcome = self._run(entry, settings, places)
        except Exception as error:  # noqa: BLE001 - whatever it is, the other problems go on
            outcome = "failed", f"{type(error).__name__}: {one_line(str(error))}"
        self.ends.put((number, outcome))

    def _run(self, entry: Entry, settings: Settings, places: tuple[Place, ...]) -> Outcome:
        own, log = self.folder / entry.name, self.folder / LOGS / f"{entry.name}.log"
        log.parent.mkdir(exist_ok=True)
        problem = Path(entry.path)
        flaws = [] if Trace(own).run_file.is_file() else flaws_of(problem, self.gpu)
        if self.stop.is_set():
            return entry.state, None
        there = {device.uuid: device for device in devices()} if places[0].uuid else {}
        gpus = tuple(there[place.uuid] for place in places if place.uuid)
        unfinished = sum(entry.state != "finished" for entry in self.suite.entries)
        beside = min(self.places.most_at_once, unfinished)
        task = Task(problem, settings, own, log, self.observer, tuple(flaws), gpus, beside)
        return run_apart(task, self.stop)

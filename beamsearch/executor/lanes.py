"""The executor over several lanes: each job on one of them, and again where one dies."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, cast

from beamsearch.errors import BeamsearchError, Stopped
from beamsearch.executor.client import LaneClient, LaneDied, LaneFacts, LaneSpec
from beamsearch.executor.dispatch import (
    Load,
    lane_alone,
    lane_to_prepare,
    next_job,
    subjects_of,
    verdict_on,
    work_of,
)
from beamsearch.executor.executor import timed_again
from beamsearch.gpu.usage import Usage
from beamsearch.judge.once import OncePerKey
from beamsearch.records.job import CompareJob, Job, Subject
from beamsearch.records.measurement import Measurement
from beamsearch.records.record import R
from beamsearch.records.usage import LaneUse

STRIKES = 2
"""Lanes that may die of a job before that is its answer; the second time it ran alone."""
STARTS = 3
"""Tries to begin a lane that dies as it begins: out of memory, or killed from outside."""
LEFT = 3
"""Machines that may leave under a job, each with a lane, before that counts as the job's doing: of
machines that are lent, one may go at any time."""
UNREADY = 4
"""Times a lane that a job may meet lanes that die ahead of it."""
PROMISED = 16
"""Kernels a lane that are remembered as prepared there: some are never judged."""


@dataclass
class _Slot:
    """One lane's place, whatever process is in it. Needs the executor's lock."""

    spec: LaneSpec
    client: LaneClient | None = None
    used_before: LaneUse = field(default_factory=LaneUse)
    """By lanes that were here and died."""
    jobs: list[Job[Any]] = field(default_factory=list)
    kept: bool = False
    """Whether a job has it, or waits to have it, alone."""
    gone: BaseException | None = None
    """Why it is given up."""
    starts: int = 0
    """Times it was begun since it last was ready."""


@dataclass(frozen=True)
class _Anchor:
    """What every lane times in every visit, ahead of all else of that visit."""

    subject: Subject
    keep: Callable[[Measurement], None]
    known: Collection[str]
    timed: OncePerKey = field(default_factory=OncePerKey)


class Lanes:
    """Runs jobs on several lanes of one kind of GPU, of one problem. Implements `Executor`.

    Results and what is raised do not depend on which lane did what; a lane that dies, or does not
    answer, is begun again, and its jobs run once more.
    """

    def __init__(
        self,
        specs: Sequence[LaneSpec],
        open_lane: Callable[[LaneSpec], LaneClient],
        *,
        gpu: str,
        measures: bool,
        usage: Usage,
        share: bool = False,
        tell: Callable[[str], None] = lambda note: None,
        at_end: Callable[[], None] = lambda: None,
    ) -> None:
        """`open_lane` begins one, and returns at once. `share`: whether what one found out of a
        kernel is known to all. `tell` takes what people should know.
        `at_end` is called when all lanes are closed."""
        self.gpu = gpu
        self.measures = measures
        self.usage = usage
        self._open_lane = open_lane
        self._share = share
        self._tell = tell
        self._at_end = at_end
        self._changed = threading.Condition()
        self._homes: dict[str | None, int] = {}
        self._promised: OrderedDict[str | None, int] = OrderedDict()
        self._anchor: _Anchor | None = None
        self._waiting: list[Job[Any]] = []
        self._closed = False
        self._slots = [_Slot(spec) for spec in specs]
        for number in range(len(specs)):
            self._client(number)
        usage.count_lanes(self._use)

    def run(self, job: Job[R]) -> R:
        """The job's record. Raises BeamsearchError."""
        deaths: list[LaneDied] = []
        died_on: list[int] = []
        unready = left = 0
        while len(deaths) < STRIKES:
            alone = bool(deaths)
            number = self._admitted(job, died_on, alone=alone)
            try:
                try:
                    client, facts = self._ready(number)
                    self._time_anchor(client, facts)
                except LaneDied:  # not of this job
                    unready += 1
                    if unready > UNREADY * len(self._slots):
                        raise
                    continue
                return client.submit(job).result()
            except LaneDied as death:
                if unready > UNREADY * len(self._slots):
                    raise
                if death.left and left < LEFT:
                    left += 1
                else:
                    deaths.append(death)
                    died_on.append(number)
                with suppress(BeamsearchError):  # whoever needs the lane meets it
                    self._client(number)
            finally:
                self._left(number, job, alone=alone)
        return cast("R", verdict_on(job, deaths))

    def prepare(self, subjects: Sequence[Subject]) -> None:
        """Begin what the CPU has to do for each, on the lane that will get its job."""
        for subject in subjects:
            with self._changed:
                placed = any(map(_is_placed, self._slots))
                loads = self._loads(unplaced=not placed)
                number = lane_to_prepare(subject, loads, self._homes, share=self._share)
                if number is None:
                    continue
                if subject.kind == "kernel":
                    self._homes[subject.source] = self._promised[subject.source] = number
                while len(self._promised) > PROMISED * len(self._slots):
                    self._promised.popitem(last=False)
                client = self._slots[number].client
            if client is not None:
                client.prepare([subject])

    def anchor(
        self, subject: Subject, keep: Callable[[Measurement], None], known: Collection[str]
    ) -> None:
        """Time the input kernel on every lane, and on each that is begun later. Returns at once;
        jobs wait for it."""
        self._anchor = _Anchor(subject, keep, known)

        def begin(number: int) -> None:
            with suppress(BeamsearchError):  # the next job there meets it
                self._time_anchor(*self._ready(number))

        for number in range(len(self._slots)):
            threading.Thread(target=begin, args=(number,), daemon=True).start()

    def missing_isolation(self) -> dict[str, str]:
        """Parts of the isolation of candidates that the system refuses, as the first lane says."""
        deaths = 0
        while True:
            number = self._admitted(None, (), alone=False)
            try:
                return self._ready(number)[0].missing_isolation()
            except LaneDied:
                deaths += 1
                if deaths > UNREADY:
                    raise

    def close(self) -> None:
        """End every lane."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            clients = [slot.client for slot in self._slots if slot.client is not None]
        ends = [threading.Thread(target=client.close) for client in clients]
        for end in ends:
            end.start()
        for end in ends:
            end.join()
        self._at_end()

    def _admitted(self, job: Job[Any] | None, died: Collection[int], *, alone: bool) -> int:
        """A lane that takes this job now; `alone`: with no other. Waits for one. Raises Stopped
        where the executor is closed, and what took the lanes where none is left."""
        with self._changed:
            if job is not None and not alone:
                self._waiting.append(job)
            try:
                while (number := self._lane_now(job, died, alone=alone)) is None:
                    self._changed.wait()
            finally:
                self._waiting = [other for other in self._waiting if other is not job]
            slot = self._slots[number]
            slot.kept = alone
            while alone and slot.jobs:
                self._changed.wait()
                self._check_open()
            if job is not None:
                slot.jobs.append(job)
                for subject in subjects_of(job):
                    self._promised.pop(subject.source, None)
                    if subject.kind == "kernel":
                        self._homes[subject.source] = number
            self._changed.notify_all()  # who is next may begin too
            return number

    def _lane_now(self, job: Job[Any] | None, died: Collection[int], *, alone: bool) -> int | None:
        """The lane that this job goes to, where that is its turn."""
        self._check_open()
        self._begin_again()
        loads = self._loads()
        if alone:
            return lane_alone(loads, died)
        if job is None:
            return next((n for n, load in enumerate(loads) if not load.is_closed), None)
        found = next_job(self._waiting, loads, self._homes, share=self._share)
        return found[1] if found is not None and self._waiting[found[0]] is job else None

    def _check_open(self) -> None:
        if self._closed:
            raise Stopped("the executor is closed")
        if all(slot.gone for slot in self._slots):
            error = self._slots[0].gone
            assert error is not None
            raise error

    def _left(self, number: int, job: Job[Any], *, alone: bool) -> None:
        """A job is no longer on a lane."""
        with self._changed:
            slot = self._slots[number]
            slot.jobs = [other for other in slot.jobs if other is not job]
            if alone:
                slot.kept = False
            self._changed.notify_all()

    def _begin_again(self) -> None:
        """Begin lanes that died: one that gets a place only later holds no job up meanwhile."""
        for number, slot in enumerate(self._slots):
            if slot.gone is None and slot.client is not None and not slot.client.alive:
                self._client(number)

    def _loads(self, *, unplaced: bool = False) -> list[Load]:
        """What each lane has to do; `unplaced`: also one that has no place yet counts as open."""
        promised = list(self._promised.values())
        return [
            Load(
                work=sum(work_of(job) for job in slot.jobs),
                promised=promised.count(number),
                is_closed=slot.kept or slot.gone is not None or not (unplaced or _is_placed(slot)),
            )
            for number, slot in enumerate(self._slots)
        ]

    def _client(self, number: int) -> LaneClient:
        """The lane in a place, begun again where it died."""
        with self._changed:
            self._check_open()
            slot = self._slots[number]
            if slot.gone is not None:
                raise LaneDied(f"{slot.spec.name} is given up")
            if slot.client is None or not slot.client.alive:
                if slot.client is not None:
                    slot.used_before = slot.used_before.plus(slot.client.use())
                    self._tell(f"{slot.spec.name} died and is begun again; its jobs run once more")
                slot.client = self._open_lane(slot.spec)
                slot.starts += 1
                slot.client.placed.add_done_callback(self._placed)
            return slot.client

    def _placed(self, _: object) -> None:
        with self._changed:
            self._changed.notify_all()

    def _ready(self, number: int) -> tuple[LaneClient, LaneFacts]:
        """The lane in a place once it takes jobs. Raises LaneDied where it does not begin: then it
        is tried again, or given up, and others go on."""
        client = self._client(number)
        slot = self._slots[number]
        if not client.placed.done():
            raise LaneDied(f"{slot.spec.name} waits for a place")
        try:
            facts = client.facts.result()
        except LaneDied as death:
            with self._changed:
                if slot.starts >= STARTS and not death.left:
                    self._give_up(slot, death)
            raise
        except Stopped:
            raise
        except BeamsearchError as error:
            with self._changed:
                self._give_up(slot, error)
            raise LaneDied(str(error)) from error
        slot.starts = 0
        return client, facts

    def _give_up(self, slot: _Slot, error: BeamsearchError) -> None:
        if slot.gone is None:
            slot.gone = error
            self._changed.notify_all()
            if not all(other.gone for other in self._slots):
                self._tell(f"{slot.spec.name} does not begin and is left out: {error}")

    def _time_anchor(self, client: LaneClient, facts: LaneFacts) -> None:
        """The input kernel's time in a lane's visit, taken once. Raises LaneDied."""
        anchor, visit = self._anchor, facts.visit
        if anchor is None or visit is None or visit in anchor.known:
            return

        def take() -> None:
            job = CompareJob(subjects=[anchor.subject], own_python="none")
            anchor.keep(timed_again(anchor.subject, client.submit(job).result()))

        anchor.timed.get(visit, take)

    def _use(self) -> dict[str, LaneUse]:
        with self._changed:
            return {
                slot.spec.name: slot.used_before.plus(slot.client.use())
                if slot.client is not None
                else slot.used_before
                for slot in self._slots
            }


def _is_placed(slot: _Slot) -> bool:
    return slot.client is not None and slot.client.placed.done()

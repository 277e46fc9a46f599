"""Discrete events: processes that pause, hold places of a pool, or wait for each other.

A process is a generator. What it yields says what it waits for; it goes on when that is over. Equal
times go in the order in which they were asked for, so that a simulation is the same each time.
Nothing here knows kernels.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

WAITS = ("start", "compilation", "model", "round's end")
"""What an idle lane waits for, as `beamsearch.gpu.usage` has it: where several go on, the first has
the first lanes."""
NO_JOB = "no job"
"""What is left: lanes for which there is no job, whatever one waits for."""


class Account:
    """Every moment of some lanes: what each was held for, or what it waited for."""

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        self.held: Counter[str] = Counter()
        """Lanes by what they are held for right now."""
        self.waiting: Counter[str] = Counter()
        """Processes by what they wait for right now."""
        self.busy_s: Counter[str] = Counter()
        self.idle_s: Counter[str] = Counter()
        self._since = 0.0

    def book(self, now: float) -> None:
        """Add the time since the last change; call it ahead of the next one."""
        seconds, self._since = now - self._since, now
        for what, lanes in self.held.items():
            self.busy_s[what] += lanes * seconds  # type: ignore[assignment]
        idle = self.lanes - self.held.total()
        for why in WAITS:
            some = min(idle, self.waiting[why])
            self.idle_s[why] += some * seconds  # type: ignore[assignment]
            idle -= some
        self.idle_s[NO_JOB] += idle * seconds  # type: ignore[assignment]


class Pool:
    """Places that jobs hold, one each, in their order; of one order, first come, first served."""

    def __init__(self, places: int, *, lanes: bool = False) -> None:
        """`lanes`: whether these are the lanes that accounts are of."""
        self.places = self.free = places
        self.lanes = lanes
        self.queue: list[tuple[tuple[int, int], int, Hold, Task]] = []
        """A heap."""


@dataclass(frozen=True)
class Pause:
    """Time passes, and neither a lane nor a core is held: a model answers, a process starts."""

    seconds: float
    wait: str


@dataclass(frozen=True)
class Hold:
    """A place of a pool for a time."""

    pool: Pool
    seconds: float
    what: str
    order: tuple[int, int] = (0, 0)
    """The least first."""


@dataclass(frozen=True)
class Until:
    """Wait for others to end."""

    tasks: Sequence[Task]


Process = Generator[Pause | Hold | Until, None, None]


@dataclass(eq=False)
class Task:
    """A process under way, and the account of the lanes that it works for."""

    process: Process
    account: Account
    ended: bool = False
    missing: int = 0
    """How many others it waits for."""
    followers: list[Task] = field(default_factory=list)
    """Who waits for its end."""


class Simulation:
    """Runs processes until none has anything left to do."""

    def __init__(self) -> None:
        self.now = 0.0
        self._order = itertools.count()
        self._events: list[tuple[float, int, Task, Pause | Hold]] = []

    def begin(self, process: Process, account: Account) -> Task:
        """Start a process at this moment."""
        task = Task(process, account)
        self._go_on(task)
        return task

    def run(self) -> float:
        """Everything until the end, whose time is returned."""
        while self._events:
            self.now, _, task, step = heapq.heappop(self._events)
            if isinstance(step, Pause):
                self.wait(task.account, step.wait, -1)
            else:
                self._release(step, task.account)
            self._go_on(task)
        return self.now

    def wait(self, account: Account, why: str, count: int) -> None:
        """So many processes more, or fewer, wait for this from now on."""
        account.book(self.now)
        account.waiting[why] += count

    def _go_on(self, task: Task) -> None:
        step = next(task.process, None)
        if step is None:
            task.ended = True
            for follower in task.followers:
                follower.missing -= 1
                if not follower.missing:
                    self._go_on(follower)
        elif isinstance(step, Pause):
            self.wait(task.account, step.wait, 1)
            self._later(task, step)
        elif isinstance(step, Hold):
            entry = (step.order, next(self._order), step, task)
            heapq.heappush(step.pool.queue, entry)
            self._grant(step.pool)
        else:
            going = [other for other in step.tasks if not other.ended]
            task.missing = len(going)
            for other in going:
                other.followers.append(task)
            if not going:
                self._go_on(task)

    def _later(self, task: Task, step: Pause | Hold) -> None:
        event = (self.now + step.seconds, next(self._order), task, step)
        heapq.heappush(self._events, event)

    def _grant(self, pool: Pool) -> None:
        """Give free places to those who are first in the queue."""
        while pool.queue and pool.free:
            _, _, step, task = heapq.heappop(pool.queue)
            pool.free -= 1
            if pool.lanes:
                task.account.book(self.now)
                task.account.held[step.what] += 1
            self._later(task, step)

    def _release(self, step: Hold, account: Account) -> None:
        step.pool.free += 1
        if step.pool.lanes:
            account.book(self.now)
            account.held[step.what] -= 1
        self._grant(step.pool)

"""One run in a process of its own: a problem that hangs as it loads, dies, or leaves memory behind
takes no other one with it, and no run outlives who asked for it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import IO, TYPE_CHECKING

from beamsearch.errors import BeamsearchError, OutOfBudget, Stopped, UsageError, Waiting
from beamsearch.gpu.environment import Device, see_only
from beamsearch.judge.sandbox.server_process import stand_by
from beamsearch.records.audit import Fault
from beamsearch.records.suite import State
from beamsearch.run.lock import folder_lock
from beamsearch.run.stop import StopToken
from beamsearch.settings import Settings
from beamsearch.suite.processes import end, end_with_parent, forking, join, start
from kernel_profiling.errors import one_line

if TYPE_CHECKING:
    from beamsearch.run.observer import Observer

LOCK_S = 10.0
"""How long a run waits for its folder: a process of a suite that was killed ends in less."""
LOAD_S = 120.0
"""How long a problem's file may take to load, the wait for its folder included: the largest of
KernelBench are examined whole in half a minute."""
END_S = 30.0
"""How long a process may take to end after its result: what it started is closed meanwhile."""
PRELOADED = "beamsearch.run.run", "beamsearch.suite.audit"


@dataclass(frozen=True)
class Task:
    """A run to be done."""

    problem: Path
    settings: Settings
    folder: Path
    log: Path
    """Where what the run says is added."""
    observer: Callable[[IO[str]], Observer]
    """Makes one that writes into the log; a name in a module."""
    flaws: tuple[Fault, ...] = ()
    gpus: tuple[Device, ...] = ()
    """The GPUs that it sees; all where none are named."""
    beside: int = 1
    """Runs of this machine at once, this one among them."""


Outcome = tuple[State, str | None]
"""How far a run came, and in one line why no further."""
LOADED = "loaded"
"""What the process says once its problem is."""


def get_ready(*, on_gpus: bool = False) -> ForkServerContext:
    """What starts the processes of runs; begins to import what they need. Returns at once.
    `on_gpus`: each run then imports by itself what traces a problem (a second, and so does an audit
    that is not kept yet); its context and its fork server begin meanwhile."""
    return forking(*PRELOADED, tracing=not on_gpus)


def run_apart(task: Task, stop: StopToken) -> Outcome:
    """Do a run in a process of its own. `stop` stops it cleanly."""
    task.log.touch()
    context = get_ready()
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_work, args=(theirs, task))
    start(process)
    theirs.close()
    is_asked, is_loaded, begun = False, False, time.monotonic()
    try:
        while True:
            if ours.poll(0.1):
                said = ours.recv()
                if said != LOADED:
                    break
                is_loaded = True
            if not is_loaded and time.monotonic() - begun > LOAD_S:
                return "failed", f"it did not load in {LOAD_S:.0f} s"
            if stop.is_set() and not is_asked:
                process.terminate()
                is_asked = True
        join(process, END_S)
        outcome: Outcome = said
        return outcome
    except EOFError:
        join(process)
        if is_asked:
            return "running", "stopped"
        code = process.exitcode
        return "failed", f"its process ended with exit code {code}: {_last_line(task.log)}"
    finally:
        end(process)
        ours.close()


def _work(link: Connection, task: Task) -> None:
    """The process: it leads a session, so that Ctrl-C reaches it only through who asked."""
    os.setsid()
    end_with_parent()
    with task.log.open("a") as log:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(log.fileno(), stream.fileno())
        if task.gpus:
            _begin_on(task.gpus)
        outcome = _outcome(link, task, log)
        if outcome[0] == "failed":
            log.write(f"error: {outcome[1]}\n")
    with suppress(BrokenPipeError):  # who asked was stopped meanwhile
        link.send(outcome)


def _begin_on(gpus: Sequence[Device]) -> None:
    """See these GPUs alone. On one, what takes seconds begins; where there are several, each has a
    lane's process."""
    see_only(gpus)
    if len(gpus) == 1:
        from beamsearch.gpu.driver import start_context

        stand_by(interpreter=False)
        start_context(0)


def _outcome(link: Connection, task: Task, log: IO[str]) -> Outcome:
    from beamsearch.problem.problem import read_problem
    from beamsearch.run.run import run

    try:
        _wait_for(task.folder)
        problem = read_problem(task.problem)
        link.send(LOADED)
        run(
            problem,
            task.settings,
            task.folder,
            kernel=None,
            observer=task.observer(log),
            flaws=task.flaws,
            beside=task.beside,
        )
    except Waiting as error:
        return "waits for answers", one_line(str(error))
    except Stopped as error:
        if isinstance(error.__cause__, OutOfBudget):
            return "waiting", one_line(str(error.__cause__))
        return "running", "stopped"
    except BeamsearchError as error:
        return "failed", one_line(str(error))
    return "finished", None


def _wait_for(folder: Path) -> None:
    """Wait until nobody works in a folder. Raises UsageError where somebody still does."""
    until = time.monotonic() + LOCK_S
    while True:
        try:
            with folder_lock(folder):
                return
        except UsageError:
            if time.monotonic() > until:
                raise
        time.sleep(0.1)


def _last_line(log: Path) -> str:
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
    return next((line for line in reversed(lines) if line), f"{log} is empty")

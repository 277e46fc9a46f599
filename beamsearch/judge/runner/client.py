"""The runner as the judge talks to it: one process for many plans, replaced after any fault."""

import itertools
import os
import signal
import socket
import subprocess
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock, Thread
from typing import Any

from beamsearch.errors import BeamsearchError, ShortOfMemory, Stopped
from beamsearch.judge.capture.compiling import Compiled
from beamsearch.judge.runner.reference import COMPILES
from beamsearch.judge.sandbox.clean_environment import QUEUES, start_python
from beamsearch.judge.sandbox.protocol import (
    Conversation,
    DeadlineMissed,
    ProcessDied,
    ToldError,
)
from beamsearch.records.plan import Plan

CALL = "call"
"""The name of the call that is bound, one at a time."""
OPEN_S = 120.0
"""Seconds for torch's import and a CUDA context: three, and a minute from a cold network disk."""


class RunnerProcess:
    """A runner's process: it begins to import what it needs, and needs no lane for that."""

    def __init__(self, log: Path, compiles: bool, cores: int) -> None:
        """`compiles`: torch.compile will be wanted, whose import takes longer than all others; it
        uses so many cores."""
        ours, theirs = socket.socketpair()
        arguments = ["-m", "beamsearch.judge.runner.process", str(theirs.fileno())]
        arguments += [COMPILES] * compiles
        environment = baseline_caches() | (usual(cores) if compiles else {})
        self._process = start_python(arguments, [theirs], log, environment)
        self._log = log
        self._conversation = Conversation(ours, self._how_it_died)
        self._lock = Lock()
        self._has_context = False
        self._why_none: BeamsearchError | None = None
        self.alive = True
        self.is_open = False

    def start_cuda(self, device: int) -> None:
        """Take a context of the GPU, where it has none yet; needs no lane. Thread-safe. Raises
        BeamsearchError where it gets none, and ShortOfMemory where that is for want of memory."""
        with self._lock:
            if self._why_none is not None:
                raise self._why_none
            if not self._has_context:
                try:
                    self._begin("open", device=device)
                except BeamsearchError as error:
                    self._why_none = error
                    raise
                self._has_context = True

    def open(self, device: int, l2_bytes: int) -> None:
        """Get ready to load and time. Needs the lane. Raises as `start_cuda`."""
        self.start_cuda(device)
        self._begin("begin", l2_bytes=l2_bytes)
        self.is_open = True

    def _begin(self, op: str, **arguments: int) -> None:
        try:
            self.ask(op, OPEN_S, **arguments)
        except (ToldError, ProcessDied, DeadlineMissed) as error:
            self.end()
            kind = ShortOfMemory if "out of memory" in str(error) else BeamsearchError
            raise kind(
                f"the GPU gives no context to the runner's process: {error}; see `nvidia-smi` for "
                f"what else uses it, and {self._log}"
            ) from error

    def ask(self, op: str, timeout_s: float, **arguments: Any) -> dict[str, Any]:
        """One request. Raises ToldError, ProcessDied or DeadlineMissed; after the last two, and
        after an error of CUDA's, the process is of no more use and has ended."""
        try:
            return self._conversation.ask(op, timeout_s, **arguments)
        except (ProcessDied, DeadlineMissed):
            self.end()
            raise
        except ToldError as error:
            if error.details.get("type") == "CudaError":
                self.end()
            raise

    def load(self, name: str, plan: Plan, compiled: Compiled, timeout_s: float) -> "Replay":
        """Have a plan under a name, ready to be bound. Raises as `ask`."""
        binaries = [binary.model_dump(mode="json") for binary in compiled.binaries]
        self.ask("plan", timeout_s, name=name, plan=plan.model_dump(mode="json"), binaries=binaries)
        return Replay(self, name, plan.touched)

    def drop(self, name: str) -> None:
        """Forget a plan or reference, and what was bound to it."""
        if self.alive:
            with suppress(ToldError, ProcessDied, DeadlineMissed):
                self.ask("drop", OPEN_S, name=name)

    def unmap(self) -> None:
        """Have it give up what it has of the judge's memory; nothing may be bound to it."""
        if self.alive:
            try:
                self._conversation.unmap(OPEN_S)
            except (ToldError, ProcessDied, DeadlineMissed):
                self.end()

    def end(self) -> None:
        """End the process for certain."""
        if not self.alive:
            return
        self.alive = False
        self._conversation.close()
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def _how_it_died(self, gone: str) -> str:
        status = None
        with suppress(subprocess.TimeoutExpired):
            status = self._process.wait(2)
        if status is not None and status < 0:
            return f"the process that ran it was killed by {signal.Signals(-status).name}"
        return f"the process that ran it ended: {gone}"


class Runners:
    """Runners of one GPU, each opened where it is wanted; for kernels the next one is always
    started already, and baselines have one that is kept. Thread-safe."""

    def __init__(self, device: int, l2_bytes: int, scratch: Path, cores: int) -> None:
        """`cores`: as many as torch.compile uses."""
        self._gpu = {"device": device, "l2_bytes": l2_bytes}
        self._cores = cores
        self._scratch = scratch
        self._numbers = itertools.count(1)
        self._lock = Lock()
        self._started: dict[bool, RunnerProcess] = {}
        """By whether it compiles; of those for kernels, the next one."""
        self._closed = False
        self.start()

    def start(self, *, compiles: bool = False) -> RunnerProcess | None:
        """Start the next one, where none is started; it, unless all are closed."""
        with self._lock:
            return None if self._closed else self._next(compiles)

    def _next(self, compiles: bool) -> RunnerProcess:
        if self._closed:
            raise Stopped("the executor is closed")
        if compiles not in self._started or not self._started[compiles].alive:
            log = self._scratch / f"runner-{next(self._numbers)}.log"
            self._started[compiles] = RunnerProcess(log, compiles, self._cores)
        return self._started[compiles]

    def open_soon(self, *, compiles: bool = False) -> None:
        """The next one takes its context while the lane is waited for. Returns at once; what goes
        wrong is told where it is opened."""
        if runner := self.start(compiles=compiles):
            Thread(target=self._start_cuda, args=(runner,), daemon=True).start()

    def _start_cuda(self, runner: RunnerProcess) -> None:
        with suppress(BeamsearchError, OSError):  # it may be ended meanwhile
            runner.start_cuda(self._gpu["device"])

    def opened(self) -> RunnerProcess:
        """A new one for kernels, with a CUDA context. Needs the lane. Raises BeamsearchError."""
        with self._lock:
            runner = self._next(compiles=False)
            del self._started[False]
        runner.open(**self._gpu)
        self.start()
        return runner

    def for_baselines(self) -> RunnerProcess:
        """The one that is kept, with what it compiled. Needs the lane. Raises BeamsearchError."""
        with self._lock:
            runner = self._next(compiles=True)
        if not runner.is_open:
            runner.open(**self._gpu)
        return runner

    def close(self) -> None:
        """End those that are not open, and start no other."""
        with self._lock:
            self._closed = True
            for runner in self._started.values():
                if not runner.is_open:
                    runner.end()

    def end_baselines(self) -> None:
        """End the one that is kept. Needs the lane."""
        if runner := self._started.get(True):
            runner.end()


def usual(cores: int) -> dict[str, str]:
    """What a process that times libraries has where the user sets nothing: as many queues as any
    program, since a library may use several streams, and so many cores to compile on. With the
    first kernel, though it be cached, torch.compile starts a process for each, 32 on a large host.
    """
    own = {QUEUES: "8", "TORCHINDUCTOR_COMPILE_THREADS": str(cores)}
    return {name: os.environ.get(name, value) for name, value in own.items()}


def baseline_caches() -> dict[str, str]:
    """Where torch.compile keeps what it tuned, so that a machine pays for it once."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "beamsearch"
    folders = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}
    return {name: str(root / folder) for name, folder in folders.items()}


@dataclass(eq=False)
class Replay:
    """A plan, or a reference, in a runner, called as a candidate's process is: what verification
    talks to. One call is bound at a time."""

    runner: RunnerProcess
    plan: str
    touched: Collection[int] = ()
    fresh: bool = True
    """Whether memory that the kernel keeps is made anew before the next call."""
    no_graph: str = ""
    """Why its calls cannot be captured as a graph, once that was tried."""

    def ask(self, op: str, timeout_s: float, **arguments: Any) -> dict[str, Any]:
        """A request; a call goes by the plan's name and its own. Raises as `RunnerProcess.ask`."""
        if "name" in arguments:
            arguments["call"] = f"{self.plan}: {arguments.pop('name')}"
        if op == "bind":  # what was bound before is dropped
            arguments["plan"] = self.plan
        elif op == "call":
            arguments["fresh"] = self.fresh
        return self.runner.ask(op, timeout_s, **arguments)

    def unbind(self) -> None:
        """Forget the call that is bound, and its memory."""
        self.runner.drop(f"{self.plan}: {CALL}")

    def empty(self, count: int) -> list[float]:
        """Milliseconds of timed calls of nothing, by the wall clock. Raises as `ask`."""
        return [float(ms) for ms in self.ask("empty", OPEN_S, count=count)["host_ms"]]

    def time(self, *, plain: bool, timeout_s: float) -> dict[str, Any]:
        """One timed call of what is bound: `ms` and `host_ms`. Raises as `ask`."""
        if not (plain or self.no_graph):
            answer = self.ask("time", timeout_s, name=CALL, graph=True)
            self.no_graph = answer.get("no_graph", "")
            if not self.no_graph:
                return answer
        return self.ask("time", timeout_s, name=CALL, graph=False)

"""Candidate processes as the judge sees them: forked on request, spoken to, ended for certain."""

from __future__ import annotations

import itertools
import os
import re
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal

from beamsearch.errors import BeamsearchError, Stopped
from beamsearch.judge.sandbox import isolation, protocol
from beamsearch.judge.sandbox.clean_environment import remove
from beamsearch.judge.sandbox.protocol import (
    Conversation,
    DeadlineMissed,
    Gone,
    ProcessDied,
    ToldError,
)
from beamsearch.judge.sandbox.server_process import Mode, begin, modes_of, taken
from kernel_profiling.errors import one_line

Role = Literal["interpreting", "capturing", "compiling", "calling", "isolating"]
"""What a forked process is for: `interpreting` needs the interpreter's server, `calling` a GPU, and
`isolating` tells what walls there are."""
GIVE_WAY = ("capturing", "compiling")
"""Roles of which there are many at once, and of several runs: who has a GPU comes first."""

START_S = 120.0
"""Importing torch and triton takes 2 s here and a minute from a cold network disk."""
OUTPUT_TAIL = 2000
"""Characters of what a candidate printed that are kept."""
FILE_BYTES = 256 << 20
"""The largest file a candidate may write; what it prints goes into one."""
DATA_BYTES = 1 << 30
"""Memory a candidate may add to what it was forked with."""
COMPILE_BYTES = 16 << 30
"""The same of a compilation; LLVM has needed gigabytes for unrolled kernels."""
USERS_EACH = 10_000
"""User ids for the candidates of one judge."""
_HINTS: dict[int, str] = {
    signal.SIGSEGV: " (an access outside its memory)",
    signal.SIGKILL: " (it broke the protocol, or memory ran out)",
}


class ServerLost(BeamsearchError):
    """The fork server died, and a candidate with it that may be as good as any."""


class ForkServers:
    """The processes that candidates are forked from: one per mode, started when first needed.

    Each process has a user and a folder of its own: a candidate could otherwise poison what another
    one runs. Thread-safe.
    """

    def __init__(self, scratch: Path, *, interpreter: bool, hidden: Sequence[str] = ()) -> None:
        """`hidden`: folders that candidates are not to see, where this machine does."""
        self._scratch = scratch
        self._log = scratch / "server.log"
        # The folder around the scratch folder, where that is a run's, has the run's seed in it.
        runs = [folder for folder in (scratch, *scratch.parents) if folder.name == ".scratch"]
        around = [*(str(folder.parent) for folder in runs), *hidden]
        self._hidden = [str(scratch), *around]
        self._wrapping = isolation.bubblewrap(scratch, around)
        self._modes = modes_of(interpreter=interpreter)
        self._controls: dict[Mode, socket.socket] = {}
        self._locks: dict[Mode, threading.Lock] = {mode: threading.Lock() for mode in self._modes}
        self._start_lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._generation = 0
        self.closed = False
        """Whether no candidate can be had any more."""
        self._missing: dict[str, str] | None = None
        self._count = itertools.count(1)

    def start(self) -> None:
        """Start the server process; it imports torch while the caller goes on."""
        with self._start_lock:
            if self._process is None and not self.closed:
                self._start()

    def _start(self) -> None:
        there = None if self._wrapping else taken(self._modes)
        begun = there or begin(self._modes, self._log, self._wrapping)
        self._process, self._controls = begun.process, begun.controls
        for control in self._controls.values():
            control.settimeout(START_S)
        if there is not None:
            with self._log.open("ab") as log, suppress(Gone):  # who asks next sees that it died
                for control in self._controls.values():
                    protocol.send(control, {"op": "log"}, [log.fileno()])
        self._generation += 1

    def _ask(self, mode: Mode, request: Mapping[str, Any], *descriptors: int) -> dict[str, Any]:
        """One request, one answer. Raises Gone."""
        with self._locks[mode]:
            control = self._controls[mode]
            try:
                protocol.send(control, request, descriptors)
                return protocol.receive(control)
            except (OSError, Gone) as error:
                raise Gone(f"the fork server does not answer: {error}") from error

    def missing_isolation(self) -> dict[str, str]:
        """Parts of the isolation that the system refuses here, with the reasons. Raises
        BeamsearchError."""
        if self._missing is None:
            try:
                with self.fork("isolating") as process:
                    told = process.ask("isolation", START_S)["missing"]
            except (ProcessDied, DeadlineMissed) as error:
                told = dict.fromkeys(isolation.NAMES, f"the attempt failed: {error}")
            self._missing = {name: why for name, why in told.items() if why}
        return self._missing

    def fork(
        self, role: Role, *, key: str = "", lifetime_s: float = float("inf")
    ) -> CandidateProcess:
        """A new process, which may import the source of this key. All its requests together may
        take `lifetime_s` seconds. Raises BeamsearchError where none can be had."""
        mode: Mode = "interpreter" if role == "interpreting" else "normal"
        self.start()
        if self.closed:  # before a folder is made for it
            raise Stopped("the executor is closed")
        for attempt in (1, 2):
            generation = self._generation
            try:
                return self._fork(mode, role, key, lifetime_s)
            except Gone as error:
                # Out of memory takes servers too; the next one is as good.
                if self.closed:
                    raise Stopped("the executor is closed") from error
                if attempt == 2:
                    raise BeamsearchError(
                        f"no process for candidates could be started; {self._log} says: "
                        f"{_log_tail(self._log)}"
                    ) from error
                with self._start_lock:
                    if generation == self._generation:
                        self._stop()
                        self._start()
        raise AssertionError

    def _fork(self, mode: Mode, role: Role, key: str, lifetime_s: float) -> CandidateProcess:
        number = next(self._count)
        folder = self._scratch / "processes" / f"{mode}-{number}"
        folder.mkdir(parents=True)
        source = self._scratch / "sources" / key
        # Held open from here on: whatever a candidate puts in the file's place later (a pipe on
        # which reading never ends, a link to what it may not read itself) is not read.
        output = os.open(folder / "output.txt", os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        ours, theirs = socket.socketpair()
        request = {
            "op": "fork",
            "role": role,
            "gives_way": role in GIVE_WAY and "interpreter" not in self._modes,
            "folder": str(folder),
            "output": str(folder / "output.txt"),
            "env": {
                **dict.fromkeys(("TMPDIR", "TRITON_CACHE_DIR", "HOME"), str(folder)),
                "USER": "candidate",  # torch asks, and its number has no name
                # No candidate's Python has a GPU, but to be called as users will call it.
                **({} if role == "calling" else {"CUDA_VISIBLE_DEVICES": ""}),
            },
            "isolation": {  # fields of `isolation.Plan`
                "own": [str(folder)],
                "needed": [str(source)] if key and source.is_dir() else [],
                "hidden": self._hidden,
                "uid": isolation.FIRST_UID
                + os.getpid() % USERS_EACH * USERS_EACH
                + number % USERS_EACH,
                "standing": list(isolation.BY_BUBBLEWRAP) if self._wrapping else [],
            },
            # CUDA reserves more than there is memory.
            "data_bytes": {"calling": None, "compiling": COMPILE_BYTES}.get(role, DATA_BYTES),
            "file_bytes": FILE_BYTES,
        }
        try:
            generation = self._generation
            pid = self._ask(mode, request, theirs.fileno())["pid"]
        except BaseException:
            ours.close()
            os.close(output)
            raise
        finally:
            theirs.close()
        until = time.monotonic() + lifetime_s
        end = partial(self._end, mode, generation, pid)
        return CandidateProcess(self, end, ours, folder, output, until)

    def _end(self, mode: Mode, generation: int, pid: int) -> int | None:
        if generation != self._generation:
            return None  # it died with its server
        try:
            return int(self._ask(mode, {"op": "end", "pid": pid})["status"])
        except Gone:
            return None

    def _stop(self) -> None:
        for control in self._controls.values():
            control.close()
        if self._process is not None:
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._process = None

    def close(self) -> None:
        """End the servers and whatever they forked."""
        self.closed = True
        with self._start_lock:
            self._stop()


def missing_here() -> dict[str, str]:
    """The parts of the isolation that this machine refuses, and why, as a run would find them."""
    with tempfile.TemporaryDirectory(prefix="beamsearch-") as scratch:
        Path(scratch).chmod(0o711)  # candidates are other users, who pass through
        servers = ForkServers(Path(scratch), interpreter=False)
        try:
            return servers.missing_isolation()
        except BeamsearchError as error:
            return dict.fromkeys(isolation.NAMES, one_line(str(error)))
        finally:
            servers.close()


class CandidateProcess:
    """One child: requests with deadlines, and an end that leaves nothing behind."""

    def __init__(
        self,
        servers: ForkServers,
        end: Callable[[], int | None],
        link: socket.socket,
        folder: Path,
        output: int,
        until: float,
    ) -> None:
        """`end` ends the child and its process group, and gives how it ended, none where the server
        is gone too."""
        self._servers = servers
        self._end = end
        self._conversation: Conversation | None = Conversation(link, self._how_it_died)
        self._folder = folder
        self._output = output
        self._until = until
        self.output = ""
        self.touched: Collection[int] = ()
        """What the kernel's plan touches of the arguments' storages, once that is known."""

    def __enter__(self) -> CandidateProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def ask(self, op: str, timeout_s: float, **arguments: Any) -> dict[str, Any]:
        """One request. Raises ToldError, ProcessDied or DeadlineMissed."""
        assert self._conversation is not None
        left_s = max(0.0, self._until - time.monotonic())
        try:
            return self._conversation.ask(op, min(timeout_s, left_s), **arguments)
        except ToldError as error:
            message = self.clean(str(error.details.get("message", "")))
            raise ToldError({**error.details, "message": message}) from error

    def _how_it_died(self, gone: str) -> str:
        status = self.end()
        if status is None:
            if self._servers.closed:
                raise Stopped("the executor was closed while a candidate was judged")
            raise ServerLost("the process that candidates are forked from died; is memory short?")
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            known = number in set(signal.Signals)  # not so those of real time
            name = signal.Signals(number).name if known else f"signal {number}"
            return f"its process was killed by {name}{_HINTS.get(number, '')}"
        return f"its process ended by itself with exit code {os.WEXITSTATUS(status)}"

    def end(self) -> int | None:
        """End the process and its group, keep the tail of what it printed, remove its folder."""
        if self._conversation is None:
            return None
        self._conversation.close()
        self._conversation = None
        status = self._end()
        # Cleaned before it is cut, so that what is kept depends on no folder's name.
        self.output = self.clean(_tail(self._output, 2 * OUTPUT_TAIL))[-OUTPUT_TAIL:]
        os.close(self._output)
        remove(self._folder)
        return status

    def clean(self, text: str) -> str:
        """Text without what differs from one process to the next: its folder, addresses."""
        text = text.replace(f"{self._folder}/", "").replace(str(self._folder), ".")
        text = re.sub(r"[^\s\"']*/sources/[0-9a-f]{16}/", "", text)
        return re.sub(r"\b0x[0-9a-f]{6,}\b", "0x…", text)


def _tail(descriptor: int, characters: int) -> str:
    begin = max(0, os.fstat(descriptor).st_size - 4 * characters)
    data = os.pread(descriptor, 4 * characters, begin)
    return data.decode(errors="replace")[-characters:].strip()


def _log_tail(path: Path) -> str:
    """The end of the server's log, which a candidate may have replaced where none is isolated."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            return _tail(descriptor, 400)
        finally:
            os.close(descriptor)
    return ""

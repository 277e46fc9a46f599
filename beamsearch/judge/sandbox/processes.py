"""Candidate processes as the judge sees them: forked on request, spoken to, ended for certain."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from beamsearch.errors import BeamsearchError, Stopped
from beamsearch.judge.sandbox import protocol
from beamsearch.judge.sandbox.clean_environment import scrubbed_environment
from beamsearch.judge.sandbox.conversation import (
    Conversation,
    DeadlineMissed,
    ProcessDied,
    ToldError,
)
from beamsearch.judge.sandbox.homes import Homes, remove
from beamsearch.judge.sandbox.isolation import FILES, NETWORK, PROCESSES, bubblewrap
from beamsearch.judge.sandbox.protocol import Gone

Mode = Literal["normal", "interpreter"]
Role = Literal["interpreting", "capturing", "compiling", "calling"]
"""What a forked process is for; the first needs the interpreter's server, the last a GPU."""

__all__ = ["CandidateProcess", "DeadlineMissed", "ForkServers", "ProcessDied", "ToldError"]

START_S = 120.0
"""Importing torch and triton takes 2 s here and a minute from a cold network disk."""
OUTPUT_TAIL = 2000
"""Characters of what a candidate printed that are kept."""
FILE_BYTES = 256 << 20
"""The largest file a candidate may write; what it prints goes into one."""
DATA_BYTES = 1 << 30
"""Memory a candidate may add to what it was forked with."""


class ServerLost(BeamsearchError):
    """The fork server died, and a candidate with it that may be as good as any."""


class ForkServers:
    """The processes that candidates are forked from: one per mode, started when first needed."""

    def __init__(self, scratch: Path, *, interpreter: bool) -> None:
        self._scratch = scratch
        self._homes = Homes(scratch)
        self._wrapping = bubblewrap(scratch, self._homes.around)
        self._modes: tuple[Mode, ...] = ("normal", "interpreter") if interpreter else ("normal",)
        self._controls: dict[Mode, socket.socket] = {}
        self._locks: dict[Mode, threading.Lock] = {mode: threading.Lock() for mode in self._modes}
        self._start_lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._generation = 0
        self._closed = False
        self._missing: dict[str, str] | None = None

    @property
    def closed(self) -> bool:
        """Whether no candidate can be had any more."""
        return self._closed

    def start(self) -> None:
        """Start the server process; it imports torch while the caller goes on."""
        with self._start_lock:
            if self._process is None and not self._closed:
                self._start()

    def _start(self) -> None:
        pairs = {mode: socket.socketpair() for mode in self._modes}
        fds = {mode: pair[1].fileno() for mode, pair in pairs.items()}
        log = (self._scratch / "server.log").open("ab")
        self._process = subprocess.Popen(
            [
                *(*self._wrapping, sys.executable, "-m", "beamsearch.judge.sandbox.server"),
                *(str(fds["normal"]), str(fds.get("interpreter", -1))),
            ],
            env=scrubbed_environment(),
            pass_fds=tuple(fds.values()),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # Ctrl-C in a terminal is for the judge; the server ends when the judge's sockets do.
            start_new_session=True,
        )
        log.close()
        self._controls = {}
        for mode, (ours, theirs) in pairs.items():
            theirs.close()
            ours.settimeout(START_S)
            self._controls[mode] = ours
        self._generation += 1

    def _ask(self, mode: Mode, request: Mapping[str, Any], fd: int | None = None) -> dict[str, Any]:
        """One request, one answer. Raises Gone."""
        with self._locks[mode]:
            control = self._controls[mode]
            data = protocol.frame(request)
            try:
                socket.send_fds(control, [data], [fd] if fd is not None else [])
                return protocol.receive(control)
            except (OSError, Gone) as error:
                raise Gone(f"the fork server does not answer: {error}") from error

    def missing_isolation(self) -> dict[str, str]:
        """Each part of the isolation -> why it is missing here, "" where it holds."""
        if self._missing is None:
            folder = self._scratch / "processes" / "isolation"
            folder.mkdir(parents=True, exist_ok=True)
            self.start()
            asked = {"op": "isolation", "isolation": self._plan(folder, None)}
            try:
                self._missing = self._ask("normal", asked)["missing"]
            except Gone as error:
                raise ServerLost(str(error)) from error
        return dict(self._missing)

    def _plan(self, folder: Path, key: str | None) -> dict[str, Any]:
        standing = [NETWORK, FILES, PROCESSES] if self._wrapping else []
        return self._homes.plan(folder, key) | {"standing": standing}

    def fork(self, role: Role, **options: Any) -> CandidateProcess:
        """A new process. Raises BeamsearchError where none can be had.

        Options: `key` of the source that it will import; `data_bytes`, the memory that it may add
        to what it was forked with; and `lifetime_s`, seconds that all its requests may take.
        """
        mode: Mode = "interpreter" if role == "interpreting" else "normal"
        self.start()
        for attempt in (1, 2):
            generation = self._generation
            try:
                return self._fork(mode, role, **options)
            except Gone as error:
                # Out of memory takes servers too; the next one is as good.
                if self._closed:
                    raise Stopped("the executor is closed") from error
                if attempt == 2:
                    raise BeamsearchError(
                        f"no process for candidates could be started; {self._scratch}/server.log "
                        f"says: {_log_tail(self._scratch / 'server.log')}"
                    ) from error
                self._restart(generation)
        raise AssertionError

    def _restart(self, generation: int) -> None:
        with self._start_lock:
            if generation == self._generation:
                self._stop()
                self._start()

    def _fork(
        self,
        mode: Mode,
        role: Role,
        *,
        key: str | None = None,
        data_bytes: int = DATA_BYTES,
        lifetime_s: float = float("inf"),
    ) -> CandidateProcess:
        folder = self._homes.folder(mode)
        output = _new_file(folder / "output.txt")
        ours, theirs = socket.socketpair()
        try:
            request = {
                "op": "fork",
                "role": role,
                "folder": str(folder),
                "output": str(folder / "output.txt"),
                "env": {
                    "TMPDIR": str(folder),
                    "TRITON_CACHE_DIR": str(folder),
                    "HOME": str(folder),
                    # No candidate's Python has a GPU, but to be called as users will call it.
                    **({} if role == "calling" else {"CUDA_VISIBLE_DEVICES": ""}),
                },
                "isolation": self._plan(folder, key),
                # CUDA reserves more than there is memory.
                "data_bytes": None if role == "calling" else data_bytes,
                "file_bytes": FILE_BYTES,
            }
            generation = self._generation
            pid = self._ask(mode, request, theirs.fileno())["pid"]
        except BaseException:
            ours.close()
            os.close(output)
            raise
        finally:
            theirs.close()
        until = time.monotonic() + lifetime_s
        return CandidateProcess(self, mode, generation, pid, ours, folder, output, until)

    def end(self, mode: Mode, generation: int, pid: int) -> int | None:
        """End a child and its process group; how it ended, none where the server is gone too."""
        if generation != self._generation:
            return None  # it died with its server
        try:
            status = self._ask(mode, {"op": "end", "pid": pid})["status"]
        except Gone:
            return None
        return int(status)

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
        self._closed = True
        with self._start_lock:
            self._stop()


class CandidateProcess:
    """One child: requests with deadlines, and an end that leaves nothing behind."""

    def __init__(
        self,
        servers: ForkServers,
        mode: Mode,
        generation: int,
        pid: int,
        link: socket.socket,
        folder: Path,
        output: int,
        until: float,
    ) -> None:
        self._servers = servers
        self._mode: Mode = mode
        self._generation = generation
        self._pid = pid
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
            try:
                name = signal.Signals(number).name
            except ValueError:
                name = f"signal {number}"
            hint = {
                "SIGSEGV": " (an access outside its memory)",
                "SIGKILL": " (it broke the protocol, or memory ran out)",
            }.get(name, "")
            return f"its process was killed by {name}{hint}"
        return f"its process ended by itself with exit code {os.WEXITSTATUS(status)}"

    def end(self) -> int | None:
        """End the process and its group, keep the tail of what it printed, remove its folder."""
        if self._conversation is None:
            return None
        self._conversation.close()
        self._conversation = None
        status = self._servers.end(self._mode, self._generation, self._pid)
        # Cleaned before it is cut, so that what is kept depends on no folder's name.
        self.output = self.clean(_tail(self._output, 2 * OUTPUT_TAIL))[-OUTPUT_TAIL:]
        os.close(self._output)
        remove(self._folder)
        return status

    def clean(self, text: str) -> str:
        """Text without what differs from one process to the next: its folder, addresses."""
        text = text.replace(f"{self._folder}/", "").replace(str(self._folder), ".")
        text = re.sub(r"\S*/sources/[0-9a-f]{16}/", "", text)
        return re.sub(r"\b0x[0-9a-f]{6,}\b", "0x…", text)


def _new_file(path: Path) -> int:
    """A descriptor of a file made here: whatever a candidate puts in the file's place later (a pipe
    on which reading never ends, a link to what it may not read itself) is not read."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)


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

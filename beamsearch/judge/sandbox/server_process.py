"""How the process begins that candidates are forked from, also ahead of who will want it. Imports
no torch: that takes as long as the server does, which begins before it."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

from beamsearch.judge.sandbox import isolation
from beamsearch.judge.sandbox.clean_environment import scrubbed_environment, start_python

Mode = Literal["normal", "interpreter"]


class ServerProcess(NamedTuple):
    """A server, and what it is asked through: one socket per mode."""

    process: subprocess.Popen[bytes]
    controls: dict[Mode, socket.socket]
    environment: dict[str, str]

    def is_as_begun_now(self) -> bool:
        """Whether it lives, and one that is begun now would have no other environment."""
        return self.process.poll() is None and self.environment == scrubbed_environment()


_standing_by: dict[tuple[Mode, ...], ServerProcess] = {}


def modes_of(*, interpreter: bool) -> tuple[Mode, ...]:
    """The modes of a server, with the interpreter's or without."""
    return ("normal", "interpreter") if interpreter else ("normal",)


def stand_by(*, interpreter: bool) -> None:
    """Begin a server that will be wanted, where none waits and where none is begun in a wrapping
    of its own. One that nobody takes ends with this process."""
    modes = modes_of(interpreter=interpreter)
    there = taken(modes)
    if not isolation.may_wrap():
        _standing_by[modes] = there or begin(modes, Path(os.devnull))


def taken(modes: tuple[Mode, ...]) -> ServerProcess | None:
    """The server that stands by, if there is one; one that can no longer be used ends."""
    there = _standing_by.pop(modes, None)
    if there is None or there.is_as_begun_now():
        return there
    for control in there.controls.values():
        control.close()
    return None


def begin(modes: tuple[Mode, ...], log: Path, wrapping: Sequence[str] = ()) -> ServerProcess:
    """A server that logs to this file; it imports torch while the caller goes on."""
    pairs = {mode: socket.socketpair() for mode in modes}
    theirs = [pair[1] for pair in pairs.values()]
    fds = [str(link.fileno()) for link in theirs]
    # Unbuffered: a process that is killed flushes nothing.
    arguments = ["-u", "-m", "beamsearch.judge.sandbox.server", *fds]
    environment = scrubbed_environment()
    process = start_python(arguments, theirs, log, wrapping=wrapping)
    controls = {mode: ours for mode, (ours, _) in pairs.items()}
    return ServerProcess(process, controls, environment)

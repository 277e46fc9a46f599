"""A process that Nsight Compute or compute-sanitizer has started, until it is told what to do, and
until it is its turn (see `kernel_profiling.ncu.run.Turn`). Imports little: how it waits is tested
without torch."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

from beamsearch.judge.sandbox.lifeline import end_with


class StandingBy:
    """This process, which waits."""

    def __init__(self, folder: Path) -> None:
        """`folder`: of its `Turn`."""
        self._folder = folder
        # Opening waits for nobody, reading does.
        self._pipe = os.open(folder / "go", os.O_RDONLY | os.O_NONBLOCK)
        os.set_blocking(self._pipe, True)
        self._lines = os.fdopen(self._pipe, closefd=False)

    def told(self) -> str:
        """Wait to be told what to do; the line, empty where nobody is left who might."""
        return self._line(self._folder / "ready")

    def has_turn(self) -> bool:
        """Wait for the GPU; whether it is there. From then on this process ends with whoever gave
        it."""
        given = bool(self._line(self._folder / "bound"))
        if given:
            end_with(self._pipe)
        return given

    def done(self) -> None:
        """The GPU is free."""
        (self._folder / "bound").unlink()

    def _line(self, said: Path) -> str:
        """The next line, once `said` tells that it is waited for. Meanwhile the profiler is
        stopped."""
        stopped = list(profilers())
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        said.write_text(str(os.getpid()))
        line = self._lines.readline().strip()
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
        return line


def profilers() -> Iterator[int]:
    """Nsight Compute's processes that this one was started by. Version 2025.3 keeps a core busy
    while what it watches has started the driver and waits: twelve that stood by on 32 cores made
    what held the GPUs a tenth slower."""
    pid = os.getppid()
    while pid > 1 and os.getpgid(pid) == os.getpgrp():
        name, _, state = Path(f"/proc/{pid}/stat").read_text().partition("(")[2].rpartition(")")
        if name == "ncu":
            yield pid
        pid = int(state.split()[1])

"""A process that Nsight Compute or compute-sanitizer has started, until it is told what to do (see
`kernel_profiling.ncu.run.Turn`). Imports little: how it waits is tested without torch."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

from beamsearch.judge.sandbox.lifeline import end_with


def asked(ready: Path, go: Path) -> str:
    """Say that all is there, and wait for the GPU; the line that came with it, if any came.
    Whoever gives it has the profiler go on, which is stopped until then."""
    pipe = os.open(go, os.O_RDONLY | os.O_NONBLOCK)  # opening waits for nobody, reading does
    os.set_blocking(pipe, True)
    stopped = list(profilers())
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    ready.write_text(str(os.getpid()))
    line = os.fdopen(pipe, closefd=False).readline().strip()
    if line:
        end_with(pipe)
    else:
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

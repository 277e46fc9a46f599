"""A small process that has imported torch and triton, and forks one child per candidate.

Started as `python -u -m beamsearch.judge.sandbox.server NORMAL [INTERPRETER]` with sockets by file
descriptor, and no standard input. torch is imported once; then the process forks, since
TRITON_INTERPRET binds when triton is imported. A server ends when its control socket closes, which
it does however the judge ends, and takes every child with it. It never initialises CUDA.
"""

from __future__ import annotations

import gc
import importlib
import os
import resource
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Set
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from beamsearch.judge.sandbox import isolation
from beamsearch.judge.sandbox.protocol import Gone, receive, receive_with_descriptors, send

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
_HARNESS, _CAPTURE = "beamsearch.judge.sandbox.harness", "beamsearch.judge.capture.process"
ROLES = {
    "interpreting": (_HARNESS, "Harness"),
    "capturing": (_CAPTURE, "Capturer"),
    "compiling": (_CAPTURE, "Compiler"),
    "calling": (_CAPTURE, "Caller"),
}
"""What a forked process may be -> the worker that serves as it, by name: it is preloaded, and
nothing else of the sandbox knows it."""
LESS_URGENT = 10
"""A ninth of the usual share of a core, where cores are scarce (sched(7))."""
# Imported before the first candidate, so that children share the pages and nobody waits for them.
PRELOADED = ("torch", "torch.fx.experimental.symbolic_shapes", "numpy")
PRELOADED_NORMAL = (
    *("triton", "triton.language", _HARNESS),
    *("triton.compiler.code_generator", "triton.backends.nvidia.compiler"),
    *("triton.tools.tensor_descriptor", "kernel_profiling.compiler.disassembly"),
    *(_CAPTURE, "beamsearch.judge.capture.compiling"),
)
PRELOADED_INTERPRETER = (
    *("triton", "triton.language", _HARNESS, "kernel_profiling.estimate.access"),
    *("triton.compiler.code_generator", "numpy.ma"),
)


def main(normal_fd: int, interpreter_fd: int | None = None) -> None:
    """Serve until the control socket closes."""
    for name in PRELOADED:
        importlib.import_module(name)
    if interpreter_fd is None:
        _serve(socket.socket(fileno=normal_fd))
        return
    pid = os.fork()
    if pid == 0:
        os.close(normal_fd)
        _die_with_parent()
        os.environ["TRITON_INTERPRET"] = "1"
        _serve(socket.socket(fileno=interpreter_fd))
        os._exit(0)
    os.close(interpreter_fd)
    _serve(socket.socket(fileno=normal_fd), keep=frozenset({pid}))
    os.waitpid(pid, 0)  # its control socket closes with ours


def _serve(control: socket.socket, keep: frozenset[int] = frozenset()) -> None:
    """Fork and end children on request. `keep`: children of this process that are no candidates."""
    interpreter = "TRITON_INTERPRET" in os.environ
    for name in PRELOADED_INTERPRETER if interpreter else PRELOADED_NORMAL:
        importlib.import_module(name)
    if interpreter:
        from beamsearch.judge.sandbox.interpreter import prepare_interpreter

        prepare_interpreter()
    else:
        from triton.runtime import cache

        # Reads all of Triton, a third of a second, to tell versions apart; no two share a folder.
        cache.triton_key = lambda: ""
    # An orphan of a candidate comes to this process, so that it can be found and ended.
    isolation.prctl(PR_SET_CHILD_SUBREAPER, 1)
    gc.collect()
    gc.freeze()  # a collection in a child would otherwise copy every shared page
    children: set[int] = set()
    with suppress(Gone):
        while True:
            request, descriptors = receive_with_descriptors(control)
            answer: dict[str, Any]
            if request["op"] == "log":  # of one that stood by
                for stream in (sys.stdout, sys.stderr):
                    os.dup2(descriptors[0], stream.fileno())
                os.close(descriptors[0])
                continue
            if request["op"] == "fork":
                pid, apart = _fork(request)
                if pid == 0:
                    control.close()
                    _become_candidate(request, apart, socket.socket(fileno=descriptors[0]))
                os.close(descriptors[0])
                children.add(pid)
                answer = {"pid": pid}
            else:
                answer = {"status": _end(request["pid"])}
                children.discard(request["pid"])
                _sweep(children | keep)
            send(control, answer)
    for pid in children:
        _end(pid)
    _sweep(keep)


def _fork(request: dict[str, Any]) -> tuple[int, str]:
    """A child, and why it shares this process's namespace of processes where it does."""
    if isolation.PROCESSES in request["isolation"]["standing"]:
        return os.fork(), ""
    return isolation.fork_apart()


def _become_candidate(request: dict[str, Any], apart: str, link: socket.socket) -> NoReturn:
    """The child's way: a session, folder, environment and limits of its own, then the harness."""
    try:
        os.setsid()
        _die_with_parent()
        if request["gives_way"]:
            _give_way()
        output = os.open(request["output"], os.O_WRONLY | os.O_APPEND)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["file_bytes"],) * 2)
        if request["data_bytes"] is not None:
            limit = _data_bytes() + request["data_bytes"]
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        # Where memory runs out, the candidate is what goes.
        with suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("1000")
        wanted = request["isolation"]
        needed = [*wanted["needed"], *isolation.python_places()]
        missing = isolation.build(isolation.Plan(**{**wanted, "needed": needed}), apart)
        _die_with_parent()  # a change of user forgets it
        os.chdir(request["folder"])
        os.environ.update(request["env"])
        tempfile.tempdir = None
        if request["role"] == "isolating":
            receive(link)
            send(link, {"missing": missing})
        else:
            module, worker = ROLES[request["role"]]
            getattr(importlib.import_module(module), worker)().serve(link)
    except Exception:  # noqa: BLE001 - shown with what the candidate printed; the process ends
        traceback.print_exc()
    finally:
        os._exit(0)


def _give_way() -> None:
    """Leave the cores to others. Linux may give every session the same share of them, in which
    niceness counts against the session's own processes alone; then the share is made smaller."""
    os.nice(LESS_URGENT)
    with suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(LESS_URGENT))


def _data_bytes() -> int:
    """What counts against the limit on data so far, and the stack, which does not."""
    pages = Path("/proc/self/statm").read_text().split()[5]
    return int(pages) * resource.getpagesize()


def _end(pid: int) -> int:
    """End a child and its process group; how it ended, as `waitpid` says."""
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    with suppress(ProcessLookupError):  # the group may not have been made yet
        os.kill(pid, signal.SIGKILL)
    return os.waitpid(pid, 0)[1]


def _sweep(known: Set[int]) -> None:
    """End orphans of candidates that left their process group, until there are none."""
    listing = Path(f"/proc/self/task/{os.getpid()}/children")
    while listing.exists():
        strangers = [int(pid) for pid in listing.read_text().split() if int(pid) not in known]
        if not strangers:
            return
        for pid in strangers:
            _end(pid)


def _die_with_parent() -> None:
    parent = os.getppid()
    isolation.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
    os._exit(0)  # nothing is left to do, and libraries have much to say at an orderly end

"""`python -m beamsearch …` as a user starts it, without the wait for torch.

Each command is a process of its own, forked from one that has imported what other projects wrote
and nothing of this one: that costs four seconds a command otherwise, and there are a hundred.
"""

import functools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from tests import PYTHONPATH

PRELOADED = (
    "torch",
    "torch._dynamo",  # which torch imports for the first tensor on meta
    "openai",
    "pydantic",
    "rich",
    "typer",
)


def beamsearch(*arguments, cwd=None, timeout=280, hidden=(), **environment):
    """A command that has ended, as `subprocess.run` gives it. `hidden`: variables that it does not
    see; `environment`: others that it does."""
    seen = {name: value for name, value in os.environ.items() if name not in hidden}
    seen |= {"PYTHONPATH": PYTHONPATH} | {k: str(v) for k, v in environment.items()}
    words = [str(argument) for argument in arguments]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        request = {"arguments": words, "cwd": str(cwd or Path.cwd()), "environment": seen}
        link = _warm()
        socket.send_fds(link, [json.dumps(request).encode()], [out.fileno(), err.fileno()])
        pid = int(link.recv(64))
        link.settimeout(timeout)
        try:
            code = int(link.recv(64))
        except TimeoutError:
            os.kill(pid, signal.SIGKILL)
            link.recv(64)
            raise
        finally:
            link.settimeout(None)
        told = [stream.seek(0) or stream.read().decode() for stream in (out, err)]
    return subprocess.CompletedProcess(["beamsearch", *words], code, *told)


@functools.cache
def _warm():
    """The socket of a process that forks commands; it ends with this one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    subprocess.Popen(
        [sys.executable, __file__, str(theirs.fileno())],
        pass_fds=[theirs.fileno()],
        env=os.environ | {"PYTHONPATH": PYTHONPATH},
    )
    theirs.close()
    return ours


def serve(link):
    """Fork a command for each request. Returns in the command's process alone, ready to be it."""
    while True:
        data, descriptors, _, _ = socket.recv_fds(link, 1 << 20, 2)
        if not data:
            os._exit(0)
        pid = os.fork()
        if not pid:
            link.close()
            request = json.loads(data)
            os.chdir(request["cwd"])
            os.environ.clear()
            os.environ.update(request["environment"])
            for target, source in enumerate((os.open(os.devnull, os.O_RDONLY), *descriptors)):
                os.dup2(source, target)
                os.close(source)
            sys.path[0] = request["cwd"]
            sys.argv[1:] = request["arguments"]
            return
        for descriptor in descriptors:
            os.close(descriptor)
        link.send(str(pid).encode())
        link.send(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())


if __name__ == "__main__":
    import importlib
    import runpy

    for name in PRELOADED:
        importlib.import_module(name)
    serve(socket.socket(fileno=int(sys.argv[1])))
    runpy.run_module("beamsearch", run_name="__main__", alter_sys=True)

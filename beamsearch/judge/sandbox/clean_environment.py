"""Processes that run a candidate's code, or code made from it: how they begin, with no secrets in
their environment, and how what they leave is removed."""

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_KEPT = re.compile(
    r"PATH|HOME|USER|LOGNAME|SHELL|LANG|TZ|CC|CXX|VIRTUAL_ENV|PYTHON(PATH|HOME)|LD_LIBRARY_PATH"
    r"|XDG_CACHE_HOME|HF_(HOME|HUB_CACHE)|TRITON_(HOME|CACHE_DIR|LIBCUDA_PATH)|(LC|CUDA|NVIDIA|NCCL|TORCH|TORCHINDUCTOR|PYTORCH|OMP|MKL)_\w+"
)
QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS"
"""How many streams' work a GPU takes at once from a process: 8, unless this says otherwise (CUDA
programming guide, "CUDA Environment Variables")."""
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL", re.IGNORECASE)


def scrubbed_environment() -> dict[str, str]:
    """What a candidate's process may see of the environment: no keys, no tokens."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if _KEPT.fullmatch(name) and not _SECRET.search(name)
    }
    package_root = str(Path(__file__).resolve().parents[3])
    kept["PYTHONPATH"] = os.pathsep.join([package_root, *filter(None, [kept.get("PYTHONPATH")])])
    # One process has one core's worth of work; threads of several would only fight.
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    # A context with one queue takes half as long to begin and to end (60 and 26 ms on an H200, not
    # 117 and 65), and no process on the host's GPUs gets memory meanwhile. A plan has one stream.
    kept.setdefault(QUEUES, "1")
    # Asking whether there is a GPU must not initialise CUDA in a process that is forked later.
    return kept | threads | {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}


def start_python(
    arguments: Sequence[str],
    links: Sequence[socket.socket],
    log: Path,
    env: Mapping[str, str] | None = None,
    wrapping: Sequence[str] = (),
) -> subprocess.Popen[bytes]:
    """A Python process in that environment (and `env`), which inherits `links` and closes ours."""
    with log.open("ab") as output:
        process = subprocess.Popen(
            [*wrapping, sys.executable, *arguments],
            env=scrubbed_environment() | dict(env or {}),
            pass_fds=[link.fileno() for link in links],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # Ctrl-C is for the judge; these end with their sockets
        )
    for link in links:
        link.close()
    return process


def remove(folder: Path) -> None:
    """Take a folder away; what the system refuses stays."""
    try:
        shutil.rmtree(folder, ignore_errors=True)
    except RecursionError:  # more levels than Python's stack has
        subprocess.run(["rm", "-rf", "--", str(folder)], capture_output=True, check=False)

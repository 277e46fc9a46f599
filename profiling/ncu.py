"""Runs Nsight Compute on a command line, under our own deadline and in its own process group."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from profiling.errors import (
    NcuEmptyReport,
    NcuFailed,
    NcuMissing,
    NcuPermission,
    NcuTimeout,
    NcuTooOld,
)
from profiling.profile import Profile, Record
from profiling.report import read_report

OLDEST = (2023, 3)
"""First Nsight Compute with every option used here and with Hopper's metrics complete."""

_OPTIONS = (
    "--set",
    "full",
    "--import-source",
    "yes",
    # The clocks that the timer sees, not a locked base clock: times must agree with the timer's.
    "--clock-control",
    "none",
    # Nothing until the command calls cudaProfilerStart: compilation and warm-up stay outside.
    "--profile-from-start",
    "off",
    "-f",
)
_GRACE_S = 3.0
"""What a stopped profiler gets to take its target down before both are killed."""


class Permission(Record):
    """Whether this process may read the GPU's performance counters."""

    allowed: bool | None
    """None where no NVIDIA driver tells."""
    reason: str
    """What was seen, and what to do where it is not allowed."""


@dataclass(frozen=True)
class Turn:
    """A GPU that is shared: the command starts, says that it is ready, and waits for its turn.

    It makes the file `ready`, then reads a byte from the pipe `go`; it ends where there is none,
    since then nobody waits for it any more.
    """

    ready: Path
    go: Path
    hold: Callable[[], AbstractContextManager[object]]
    """Takes the GPU."""

    @contextmanager
    def pipe(self) -> Iterator[int]:
        """The open end of `go`, which must be there before the command starts."""
        for left in (self.ready, self.go):
            left.unlink(missing_ok=True)
        os.mkfifo(self.go)
        # For both directions, or opening would wait for the other side.
        descriptor = os.open(self.go, os.O_RDWR)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def wait(self, process: subprocess.Popen[bytes], pipe: int, timeout_s: float) -> int:
        """Exit status; nothing is held for a process that ends before it is ready.

        Raises TimeoutExpired where it is never ready, or takes that long once it has the GPU.
        """
        deadline = time.monotonic() + timeout_s
        while not self.ready.exists():
            if (status := process.poll()) is not None:
                return status
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(process.args, timeout_s)
            time.sleep(0.01)
        with self.hold():
            os.write(pipe, b"g")
            return process.wait(timeout_s)


def profile_command(
    command: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float = 300.0,
    keep_report: Path | None = None,
    kernels: Collection[str] | None = None,
    ncu: Path | None = None,
    turn: Turn | None = None,
) -> Profile:
    """Profile what `command` launches between cudaProfilerStart and cudaProfilerStop.

    `kernels` names the candidate's own Triton kernels (see `read_report`); `keep_report` is where
    the .ncu-rep is copied to; `turn` has the command wait before it uses the GPU. Everything else
    is written to a private temporary folder. Raises NcuMissing, NcuTooOld, NcuPermission,
    NcuTimeout, NcuEmptyReport or NcuFailed.
    """
    program = ncu or find_ncu()
    if program is None:
        raise NcuMissing
    version = ncu_version(program)
    if version is not None and _numbers(version)[:2] < OLDEST:
        raise NcuTooOld(version, "its options and metrics differ")
    with tempfile.TemporaryDirectory(prefix="profile-") as folder:
        report, log = Path(folder, "report.ncu-rep"), Path(folder, "log")
        environment = dict(os.environ if env is None else env)
        # Nsight Compute keeps a lock file there, which may belong to another user in /tmp.
        environment.setdefault("TMPDIR", folder)
        arguments = [str(program), *_OPTIONS, "-o", str(report.with_suffix("")), *command]
        status = _run(arguments, cwd, environment, timeout_s, log, turn)
        said = log.read_text(errors="replace")
        _raise_cause(said, status, report, version)
        if keep_report is not None:
            keep_report.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(report, keep_report)
        return read_report(report, kernels=kernels)


def _run(
    arguments: list[str],
    cwd: Path | None,
    env: dict[str, str],
    timeout_s: float,
    log: Path,
    turn: Turn | None,
) -> int:
    """Exit status; the output goes to a file, since a grandchild may hold a pipe open for ever."""
    with log.open("wb") as output, turn.pipe() if turn else nullcontext(-1) as pipe:
        process = subprocess.Popen(
            arguments,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            return turn.wait(process, pipe, timeout_s) if turn else process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise NcuTimeout(timeout_s) from None
        finally:
            _end_group(process)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End what is left of the group, the profiled process included; nothing where all is over."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sign)
        except ProcessLookupError:
            break
        try:
            process.wait(_GRACE_S if sign == signal.SIGTERM else None)
        except subprocess.TimeoutExpired:
            continue


def _raise_cause(said: str, status: int, report: Path, version: str | None) -> None:
    """The error that this output means; none where there is a report and the command was well."""
    if "ERR_NVGPUCTRPERM" in said:
        raise NcuPermission
    old = re.search(
        r"==ERROR==.*(unrecogni[sz]ed option.*|not supported on this (?:device|GPU).*"
        r"|driver is not (?:supported|compatible).*)",
        said,
    )
    if old:
        raise NcuTooOld(version, old.group(1).strip().rstrip("."))
    if status != 0:
        raise NcuFailed(f"exit status {status}: {_last_words(said)}")
    if "No kernels were profiled" in said:
        raise NcuEmptyReport
    if not report.is_file():
        raise NcuFailed(f"no report was written: {_last_words(said)}")


def _last_words(said: str) -> str:
    """The profiler's own error where it gave one, else the last line printed."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    own = [line for line in lines if line.startswith("==ERROR==")]
    others = [line for line in lines if not line.startswith("==")]
    last = (others or own or ["it printed nothing"])[-1]
    return last if not own or last in own else f"{last} ({own[-1]})"


def find_ncu(root: Path = Path("/")) -> Path | None:
    """The `ncu` on PATH, else the newest in NVIDIA's usual folders under `root`; None without."""
    on_path = shutil.which("ncu")
    if on_path:
        return Path(on_path)
    for pattern in ("opt/nvidia/nsight-compute/*/ncu", "usr/local/cuda*/bin/ncu"):
        found = [path for path in root.glob(pattern) if os.access(path, os.X_OK)]
        if found:
            return max(found, key=lambda path: _numbers(str(path.relative_to(root))))
    return None


def ncu_version(ncu: Path | None = None) -> str | None:
    """The version `ncu` reports, such as 2025.3.1.0; None where it is missing or says none."""
    program = ncu or find_ncu()
    if program is None:
        return None
    try:
        answer = subprocess.run(
            [str(program), "--version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(r"Version (\d+(?:\.\d+)+)", answer.stdout)
    return version.group(1) if version else None


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text))


def check_permission(proc: Path = Path("/proc")) -> Permission:
    """Whether the driver lets this process read counters, without running anything.

    The driver keeps them for administrators by default; what it asks for is CAP_SYS_ADMIN
    (capability 21), which root has, except in most containers.
    """
    try:
        params = (proc / "driver/nvidia/params").read_text()
    except OSError:
        return Permission(allowed=None, reason="no NVIDIA driver is loaded here")
    restricted = re.search(r"RmProfilingAdminOnly:\s*(\d+)", params)
    if restricted is None:
        return Permission(allowed=None, reason="the driver does not say who may profile")
    if restricted.group(1) == "0":
        return Permission(allowed=True, reason="the driver lets every user profile")
    try:
        status = (proc / "self/status").read_text()
    except OSError:
        status = ""
    capabilities = re.search(r"CapEff:\s*([0-9a-f]+)", status)
    if capabilities is not None and int(capabilities.group(1), 16) >> 21 & 1:
        return Permission(allowed=True, reason="only administrators may profile, and this is one")
    return Permission(allowed=False, reason=str(NcuPermission()))

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
from contextlib import (
    AbstractContextManager,
    ExitStack,
    closing,
    contextmanager,
    nullcontext,
    suppress,
)
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from kernel_profiling.errors import NcuFailed, NcuUnusable
from kernel_profiling.ncu.line_counters import COUNTERS
from kernel_profiling.ncu.metrics import METRICS
from kernel_profiling.ncu.report import NO_KERNEL, read_report
from kernel_profiling.profile import Profile

OLDEST = (2023, 3)
"""First Nsight Compute with every option used here and with Hopper's metrics complete."""

_STALLS = "group:smsp__pcsamp_warp_stall_reasons"
_READ = (
    *(name for metric in METRICS for name in metric.ncu if not name.startswith("launch__")),
    *COUNTERS.values(),
    *(_STALLS, f"{_STALLS}_not_issued"),
)
_COLLECTED = {
    True: ("--set", "full"),
    False: (
        *("--section", "LaunchStats", "--section", "Occupancy"),
        *("--metrics", ",".join(dict.fromkeys(_READ))),
    ),
}
"""Whether all that there is is collected, for Nsight Compute's own window and rules, or what a
`Profile` is read from: 38 replays of a call on an H200, and 10. Nsight Compute leaves out metrics
that a GPU lacks."""
_OPTIONS = (
    *("--import-source", "yes", "-f"),
    # The clocks that the timer sees, not a locked base clock: times must agree with the timer's.
    *("--clock-control", "none"),
    # Nothing until the command calls cudaProfilerStart: compilation and warm-up stay outside.
    *("--profile-from-start", "off"),
)
_NO_PERMISSION = (
    "no permission to read GPU performance counters (ERR_NVGPUCTRPERM); run as root, give "
    "the container CAP_SYS_ADMIN, or load the driver with the module option "
    "NVreg_RestrictProfilingToAdminUsers=0"
)
_GRACE_S = 3.0
"""What a stopped profiler gets to take its target down before both are killed."""


class Permission(NamedTuple):
    """Whether this process may read the GPU's performance counters."""

    allowed: bool | None
    """None where no NVIDIA driver tells."""
    reason: str
    """What was seen, and what to do where it is not allowed."""


@dataclass(frozen=True)
class Turn:
    """A GPU that is shared: the command starts, is told what to do, gets ready for that with as
    little of the GPU as there can be, and waits for its turn.

    In `folder` it writes its process's number into the file `ready`, and reads what to do from the
    pipe `go`, one line; it makes the file `bound` once all is there but its turn, which is another
    line. Where a line does not come it ends, since then nobody waits for it any more. While it
    waits, the profiler may be stopped (SIGSTOP). It removes `bound` once its work on the GPU is
    done and its memory given back: its end and the report take no GPU.
    """

    folder: Path
    hold: Callable[[], AbstractContextManager[object]]
    """Takes the GPU."""

    @property
    def _ready(self) -> Path:
        return self.folder / "ready"

    @property
    def _bound(self) -> Path:
        return self.folder / "bound"

    @contextmanager
    def pipe(self) -> Iterator[int]:
        """The open end of `go`, which must be there before the command starts."""
        go = self.folder / "go"
        for left in (self._ready, self._bound, go):
            left.unlink(missing_ok=True)
        os.mkfifo(go)
        # For both directions, or opening would wait for the other side.
        descriptor = os.open(go, os.O_RDWR)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    @property
    def is_lost(self) -> bool:
        """Whether the command was ready, and its process is over: a profiler that is stopped does
        not notice."""
        if not self._ready.exists():
            return False
        try:
            command = self._ready.read_text()
            state = Path(f"/proc/{command}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        return state in "ZX"

    def wait(
        self, process: subprocess.Popen[bytes], pipe: int, timeout_s: float, message: str
    ) -> int:
        """Exit status; nothing is held for a process that ends before its turn. `message` is what
        it is told to do, which is not empty.

        Raises TimeoutExpired where it takes that long to get ready, or once it has the GPU, which
        is then free once the process has ended, or to end after that.
        """
        deadline = time.monotonic() + timeout_s
        _tell(process, pipe, message)
        while not self._bound.exists():
            if (status := process.poll()) is not None:
                return status
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(process.args, timeout_s)
            time.sleep(0.01)
        with self.hold():
            _tell(process, pipe, "your turn")
            deadline = time.monotonic() + timeout_s
            while self._bound.exists() and process.poll() is None:
                if time.monotonic() > deadline:
                    _end_group(process)
                    raise subprocess.TimeoutExpired(process.args, timeout_s)
                time.sleep(0.01)
        return process.wait(timeout_s)


def _tell(process: subprocess.Popen[bytes], pipe: int, line: str) -> None:
    """Give the command a line. Its profiler goes on: it would not notice that the command died."""
    with suppress(ProcessLookupError):  # another thread ended it
        os.killpg(process.pid, signal.SIGCONT)
    os.write(pipe, f"{line}\n".encode())


class Begun:
    """A command that Nsight Compute has started; with a turn, it waits for that.

    Everything it writes goes to a private temporary folder. To be closed, profiled or not. Raises
    NcuUnusable where `ncu` is missing or too old.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        ncu: Path | None = None,
        turn: Turn | None = None,
        full: bool = False,
    ) -> None:
        """`full`: with all that Nsight Compute can collect, and its own rules."""
        program = ncu or find_ncu()
        if program is None:
            raise NcuUnusable(
                "Nsight Compute (ncu) is not on PATH, in /opt/nvidia/nsight-compute or in "
                "/usr/local/cuda*/bin; install it (package nsight-compute, or the CUDA toolkit) "
                "or add its folder to PATH"
            )
        self._version = ncu_version(program)
        if self._version is not None and _numbers(self._version)[:2] < OLDEST:
            raise _too_old(self._version, "its options and metrics differ")
        self._turn = turn
        with ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="profile-"))
            self._report, self._log = Path(folder, "report.ncu-rep"), Path(folder, "log")
            environment = dict(os.environ if env is None else env)
            # Nsight Compute keeps a lock file there, which may belong to another user in /tmp.
            environment.setdefault("TMPDIR", folder)
            # To a file, since a grandchild may hold a pipe open for ever.
            output = stack.enter_context(self._log.open("wb"))
            self._pipe = stack.enter_context(turn.pipe() if turn else nullcontext(-1))
            self._process = subprocess.Popen(
                [
                    str(program),
                    *_COLLECTED[full],
                    *_OPTIONS,
                    "-o",
                    str(self._report.with_suffix("")),
                    *command,
                ],
                cwd=cwd,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            stack.callback(_end_group, self._process)
            self._open = stack.pop_all()

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        is_lost = self._turn is not None and self._turn.is_lost
        return self._process.poll() is None and not is_lost

    def profile(
        self,
        timeout_s: float,
        *,
        message: str = "",
        keep_report: Path | None = None,
        kernels: Collection[str] | None = None,
        source: str = "",
    ) -> Profile:
        """What the command launched between cudaProfilerStart and cudaProfilerStop, once it ended.

        `message`: what it is told to do, where it has a turn. `kernels` names the candidate's own
        Triton kernels, `source` is the text of their file (see `read_report`); `keep_report` is
        where the .ncu-rep is copied to. Raises NcuUnusable, NcuFailed (the whole process group has
        then ended) or ReportUnreadable.
        """
        try:
            if self._turn is not None:
                status = self._turn.wait(self._process, self._pipe, timeout_s, message)
            else:
                status = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise NcuFailed(
                f"profiling did not end within {timeout_s:g} s and was stopped; allow more time, "
                "or see whether the kernel ends on its own without the profiler"
            ) from None
        finally:
            _end_group(self._process)
        said = self._log.read_text(errors="replace")
        _raise_cause(said, status, self._report, self._version)
        if keep_report is not None:
            keep_report.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self._report, keep_report)
        return read_report(self._report, kernels=kernels, source=source)

    def end(self) -> None:
        """End what still runs: whoever waits for its profile hears NcuFailed."""
        _end_group(self._process)

    def close(self) -> None:
        """End what still runs, and remove the folder."""
        self._open.close()


def profile_command(
    command: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float = 300.0,
    keep_report: Path | None = None,
    kernels: Collection[str] | None = None,
    ncu: Path | None = None,
    full: bool = False,
) -> Profile:
    """Profile what `command` launches between cudaProfilerStart and cudaProfilerStop.

    Raises what `Begun` and its `profile` raise.
    """
    with closing(Begun(command, cwd=cwd, env=env, ncu=ncu, full=full)) as begun:
        return begun.profile(timeout_s, keep_report=keep_report, kernels=kernels)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End what is left of the group, the profiled process included; nothing where all is over."""
    for sign, grace_s in ((signal.SIGTERM, _GRACE_S), (signal.SIGKILL, None)):
        with suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(process.pid, sign)
            os.killpg(process.pid, signal.SIGCONT)  # one that is stopped ends only then
            process.wait(grace_s)


def _raise_cause(said: str, status: int, report: Path, version: str | None) -> None:
    """The error that this output means; none where there is a report and the command was well."""
    if "ERR_NVGPUCTRPERM" in said:
        raise NcuUnusable(_NO_PERMISSION)
    old = re.search(
        r"==ERROR==.*(unrecogni[sz]ed option.*|not supported on this (?:device|GPU).*"
        r"|driver is not (?:supported|compatible).*)",
        said,
    )
    if old:
        raise _too_old(version, old.group(1).strip().rstrip("."))
    if "No kernels were profiled" in said and status == 0:
        raise NcuFailed(NO_KERNEL)
    if status != 0 or not report.is_file():
        what = f"exit status {status}" if status else "no report was written"
        raise NcuFailed(
            f"profiling failed: {what}: {_last_words(said)}; run the command without ncu to see "
            "its error"
        )


def _too_old(version: str | None, cause: str) -> NcuUnusable:
    return NcuUnusable(
        f"Nsight Compute {version or '(unknown version)'} is too old here: {cause}; install "
        "version 2023.3 or later, and one no older than the driver's CUDA"
    )


def _last_words(said: str) -> str:
    """The profiler's own error where it gave one, else the last line printed."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    own = [line for line in lines if line.startswith("==ERROR==")]
    others = [line for line in lines if not line.startswith("==")]
    last = (others or own or ["it printed nothing"])[-1]
    return last if not own or last in own else f"{last} ({own[-1]})"


def find_ncu(root: Path = Path("/")) -> Path | None:
    """The `ncu` on PATH, else the newest in NVIDIA's usual folders under `root`; None without."""
    return find_program("ncu", ("opt/nvidia/nsight-compute/*", "usr/local/cuda*/bin"), root)


def find_program(name: str, folders: Sequence[str], root: Path = Path("/")) -> Path | None:
    """A program on PATH, else the newest in the first of the folders (patterns) that has one."""
    on_path = shutil.which(name)
    if on_path:
        return Path(on_path)
    for folder in folders:
        found = [path for path in root.glob(f"{folder}/{name}") if os.access(path, os.X_OK)]
        if found:
            return max(found, key=lambda path: _numbers(str(path.relative_to(root))))
    return None


def ncu_version(ncu: Path) -> str | None:
    """The version `ncu` reports, such as 2025.3.1.0; None where it is missing or says none."""
    try:
        answer = subprocess.run(
            [str(ncu), "--version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.search(r"Version (\d+(?:\.\d+)+)", answer.stdout)
    return version[1] if version else None


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text))


def check_permission(proc: Path = Path("/proc")) -> Permission:
    """Whether the driver lets this process read counters, without running anything.

    The driver keeps them for administrators by default; what it asks for is CAP_SYS_ADMIN
    (capability 21), which root has, except in most containers.
    """

    def number(file: str, pattern: str, base: int) -> int | None:
        try:
            found = re.search(pattern, (proc / file).read_text())
        except OSError:
            return None
        return int(found[1], base) if found else None

    if not (proc / "driver/nvidia/params").is_file():
        return Permission(None, "no NVIDIA driver is loaded here")
    restricted = number("driver/nvidia/params", r"RmProfilingAdminOnly:\s*(\d+)", 10)
    if restricted is None:
        return Permission(None, "the driver does not say who may profile")
    if restricted == 0:
        return Permission(True, "the driver lets every user profile")
    if (number("self/status", r"CapEff:\s*([0-9a-f]+)", 16) or 0) >> 21 & 1:
        return Permission(True, "only administrators may profile, and this is one")
    return Permission(False, _NO_PERMISSION)

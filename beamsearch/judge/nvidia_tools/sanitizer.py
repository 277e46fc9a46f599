"""A kernel under NVIDIA's compute-sanitizer: every access inside its tensors."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from beamsearch.judge.capture.forms import Captured, Form
from beamsearch.judge.nvidia_tools.spec import CALL, write_call
from beamsearch.judge.rejection import Log, Rejected
from beamsearch.judge.sandbox.clean_environment import scrubbed_environment
from beamsearch.problem.problem import Problem
from beamsearch.records.verdict import Outcome, Stage
from kernel_profiling.ncu.run import Turn, find_program

SANITIZE_S = 180.0
"""Seconds to get ready for one call, and for the call: under ten both where nothing is large."""
SHOWN = 20
"""Errors in the report; the first is the reason."""

_ERROR = re.compile(r"=+ (Invalid \S+ \w+ of size .*|Misaligned .*|.*(?:out of bounds|overflow).*)")
_PLACE = re.compile(r"=+ {2,}at (.*)")
_SUMMARY = re.compile(r"ERROR SUMMARY: (\d+) error")


def find_sanitizer() -> Path | None:
    """The `compute-sanitizer` on PATH, else one in a CUDA toolkit; None without."""
    return find_program("compute-sanitizer", ("usr/local/cuda*/bin", "opt/cuda*/bin"))


class MemoryCheck:
    """One kernel's calls under the sanitizer, side by side, since nothing is timed: most of a call
    is Python's start, which needs no lane. To be closed."""

    def __init__(self, problem: Problem, device: int, scratch: Path) -> None:
        self._problem = problem
        self._device = device
        self._scratch = scratch
        self._pool = ThreadPoolExecutor(2)
        self._runs: dict[str, Future[str]] = {}
        self._processes: list[subprocess.Popen[bytes]] = []
        self._may_go = threading.Event()
        self._closed = False

    def begin(self, captured: Captured, form: Form) -> None:
        """Get ready to call this form, and a form at shrunk shapes where the kernel takes them.
        Nothing where that is done."""
        if self._runs or (program := find_sanitizer()) is None:
            return
        calls = [("the true shapes", self._problem, form)]
        for item in captured.elsewhere[:1]:
            if isinstance(item.form, Form):
                calls.insert(0, (item.label, item.problem, item.form))
        for label, problem, one in calls:
            run = self._pool.submit(self._run, program, problem, one, len(self._runs))
            self._runs[label] = run

    def finish(self, log: Log) -> None:
        """Call them. Needs the lane.

        Raises Rejected where one accesses memory outside its tensors. What keeps the sanitizer from
        telling is noted as not checked: it may be no fault of the kernel.
        """
        self._may_go.set()
        if not self._runs:
            log.not_checked.append(
                "memory safety: compute-sanitizer is not installed (it comes with the CUDA toolkit)"
            )
        for label, run in self._runs.items():
            report = run.result()
            if error := first_error(report):
                reason = f"at {label} the kernel leaves its tensors: {error}"
                raise Rejected(Outcome.WRONG, Stage.MEMORY, reason)
            if _SUMMARY.search(report):
                log.passed(Stage.MEMORY, label, "no access outside its tensors")
            else:
                last = report.strip().splitlines()[-1:] or ["no report"]
                log.not_checked.append(
                    f"memory safety at {label}: compute-sanitizer says: {last[0]}"
                )

    def close(self) -> None:
        """End what was begun and is not wanted any more."""
        self._closed = True
        self._may_go.set()
        for process in self._processes:
            _kill(process)
        self._pool.shutdown()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Once whoever has the lane lets them go."""
        self._may_go.wait()
        yield

    def _run(self, program: Path, problem: Problem, form: Form, number: int) -> str:
        """The sanitizer's report of one bound call on public inputs."""
        folder = Path(tempfile.mkdtemp(prefix=f"sanitizer-{number}-", dir=self._scratch))
        spec, report = folder / "call.json", folder / "report.txt"
        write_call(spec, problem, form, self._device, "sanitizer")
        turn = Turn(folder, self._turn)
        command = [
            *(str(program), "--tool", "memcheck", "--report-api-errors", "no"),
            *("--print-limit", str(SHOWN), "--log-file", str(report)),
            *(sys.executable, "-m", CALL, str(folder)),
        ]
        with (folder / "output.txt").open("wb") as output, turn.pipe() as pipe:
            process = subprocess.Popen(
                command,
                cwd=folder,
                # Every tensor an allocation of its own, with nothing readable around it.
                env=scrubbed_environment() | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            self._processes.append(process)
            if self._closed:
                _kill(process)
            try:
                turn.wait(process, pipe, SANITIZE_S, str(spec))
            except subprocess.TimeoutExpired:
                return f"no end within {SANITIZE_S:g} s"
            finally:
                _kill(process)
                process.wait()
        return report.read_text(errors="replace") if report.is_file() else ""


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def first_error(report: str) -> str | None:
    """The first access error of a report, with its place in the source; none where there is none.

    Such as `Invalid __global__ read of size 2 bytes at scale_kernel+0x1a0 in kernel.py:12`.
    """
    lines = report.splitlines()
    for number, line in enumerate(lines):
        if error := _ERROR.match(line):
            places = filter(None, map(_PLACE.match, lines[number + 1 : number + 3]))
            # The file without its folder.
            where = [re.sub(r"/\S*/", "", place[1].strip()) for place in places]
            return " at ".join([error[1].strip(), *where[:1]])
    return None

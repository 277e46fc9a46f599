"""One call of a kernel under Nsight Compute, whose processes are started ahead, or under NVIDIA's
compute-sanitizer: every access inside its tensors."""

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from pathlib import Path

from beamsearch.judge.arguments import derive_seed
from beamsearch.judge.capture.forms import Form
from beamsearch.judge.rejection import Log, Rejected
from beamsearch.judge.runner.reference import problem_message
from beamsearch.judge.sandbox.clean_environment import scrubbed_environment
from beamsearch.problem.problem import Problem
from beamsearch.records.verdict import Outcome, Stage
from kernel_profiling.ncu.run import Begun, Turn, find_program
from kernel_profiling.profile import Profile

PROFILE_S = 180.0
"""Seconds a profile may take: a slow kernel is replayed tens of times."""
PUBLIC_SEED = 0
"""Profiled inputs are nobody's secret: no verdict rests on them."""
CALL = "beamsearch.judge.nvidia_tools.call"
"""The module that makes the call."""
STANDING_BY = 2
"""Processes with everything imported that wait for a kernel to profile: as many as the parents of a
round's beam, whose profiles are wanted at once. They use no GPU."""
CLOSE_S = 5.0
"""Seconds in which whoever waits for a profile has heard that it was ended."""
SANITIZE_S = 180.0
"""Seconds for one call and its compilation, which take ten where nothing is large."""
SHOWN = 20
"""Errors in the report; the first is the reason."""

_ERROR = re.compile(r"=+ (Invalid \S+ \w+ of size .*|Misaligned .*|.*(?:out of bounds|overflow).*)")
_PLACE = re.compile(r"=+ {2,}at (.*)")
_SUMMARY = re.compile(r"ERROR SUMMARY: (\d+) error")


def write_call(spec: Path, problem: Problem, form: Form, device: int, use: str) -> None:
    """What `beamsearch.judge.nvidia_tools.call` is to call; `use` names its inputs' seed."""
    call = {
        "problem": problem_message(problem),
        "plan": form.plan.model_dump(mode="json"),
        "binaries": [binary.model_dump(mode="json") for binary in form.compiled.binaries],
        "device": device,
        "seed": derive_seed(PUBLIC_SEED, problem, use),
    }
    spec.write_text(json.dumps(call))


class Profilers:
    """Nsight Compute for one problem on one GPU; thread-safe."""

    def __init__(
        self,
        problem: Problem,
        device: int,
        scratch: Path,
        hold: Callable[[], AbstractContextManager[object]],
    ) -> None:
        """`hold` takes the lane, which is held while the GPU is used: not while Python starts, nor
        while the report is read."""
        self._problem = problem
        self._device = device
        self._folder = scratch / "profilers"
        self._hold = hold
        self._lock = threading.Condition()
        self._number = itertools.count()
        self._waiting: list[Begun] = []
        self._used: list[Begun] = []
        self._wanted = 0

    def profile(self, source_file: str, form: Form, full: bool) -> Profile:
        """The profile of one bound call. Raises ProfilingError."""
        spec = Path(source_file).parent / "call.json"
        write_call(spec, self._problem, form, self._device, "profile")
        with self._under_way(self._begin(full=True) if full else self._take()) as begun:
            profile = begun.profile(
                PROFILE_S,
                message=str(spec),
                kernels={kernel.name for kernel in form.plan.kernels},
                source=Path(source_file).read_text(),
                keep_report=spec.with_name("profile.ncu-rep"),  # taken from there by who wants it
            )
        known = {launch.name: launch for launch in form.compiled.profile.launches}
        launches = [
            launch.with_values(config=compiled.config, lowering=compiled.lowering)
            if (compiled := known.get(launch.name))
            else launch
            for launch in profile.launches
        ]
        return profile.with_values(launches=launches)

    def stand_by(self) -> None:
        """Kernels will be profiled: from now on, processes wait for them."""
        with self._lock:
            self._wanted = STANDING_BY
            self._fill()

    def _take(self) -> Begun:
        """One that stands by, or a new one."""
        with self._lock:
            while self._waiting:
                begun = self._waiting.pop(0)
                if begun.alive:
                    break
                begun.close()
            else:
                begun = self._begin()
            self._fill()
            return begun

    def _fill(self) -> None:
        while len(self._waiting) < self._wanted:
            self._waiting.append(self._begin())

    def _begin(self, *, full: bool = False) -> Begun:
        folder = self._folder / str(next(self._number))
        folder.mkdir(parents=True, exist_ok=True)  # one that was killed left its own
        turn = Turn(folder / "ready", folder / "go", self._hold)
        command = [sys.executable, "-m", CALL, str(turn.ready), str(turn.go)]
        return Begun(command, cwd=folder, env=scrubbed_environment(), turn=turn, full=full)

    @contextmanager
    def _under_way(self, begun: Begun) -> Iterator[Begun]:
        """One that is used, and closed at the end."""
        with self._lock:
            self._used.append(begun)
        try:
            with closing(begun):
                yield begun
        finally:
            with self._lock:
                self._used.remove(begun)
                self._lock.notify_all()

    def close(self) -> None:
        """End the runs that stand by, and those that are under way."""
        with self._lock:
            self._wanted = 0
            for begun in self._waiting:
                begun.close()
            self._waiting.clear()
            for begun in self._used:
                begun.end()
            self._lock.wait_for(lambda: not self._used, CLOSE_S)


def find_sanitizer() -> Path | None:
    """The `compute-sanitizer` on PATH, else one in a CUDA toolkit; None without."""
    return find_program("compute-sanitizer", ("usr/local/cuda*/bin", "opt/cuda*/bin"))


def check_memory(
    calls: list[tuple[str, Problem, Form]], device: int, scratch: Path, log: Log
) -> None:
    """Run a plan at each problem's shapes under the sanitizer. Needs the lane.

    Raises Rejected where it accesses memory outside its tensors. What keeps the sanitizer from
    telling is noted as not checked: it may be no fault of the kernel.
    """
    program = find_sanitizer()
    if program is None:
        log.not_checked.append(
            "memory safety: compute-sanitizer is not installed (it comes with the CUDA toolkit)"
        )
        return
    # Side by side: most of a run is Python's start, and nothing is timed.
    with ThreadPoolExecutor(len(calls)) as pool:
        folders = [scratch / "sanitizer" / str(number) for number in range(len(calls))]
        runs = [
            pool.submit(run_sanitizer, program, problem, form, device, folder)
            for (_, problem, form), folder in zip(calls, folders, strict=True)
        ]
    for (label, _, _), run in zip(calls, runs, strict=True):
        report = run.result()
        if error := first_error(report):
            reason = f"at {label} the kernel leaves its tensors: {error}"
            raise Rejected(Outcome.WRONG, Stage.MEMORY, reason)
        if _SUMMARY.search(report):
            log.passed(Stage.MEMORY, label, "no access outside its tensors")
        else:
            last = report.strip().splitlines()[-1:] or ["no report"]
            log.not_checked.append(f"memory safety at {label}: compute-sanitizer says: {last[0]}")


def run_sanitizer(program: Path, problem: Problem, form: Form, device: int, folder: Path) -> str:
    """The sanitizer's report of one bound call on public inputs."""
    folder.mkdir(parents=True, exist_ok=True)
    spec, report = folder / "call.json", folder / "report.txt"
    report.unlink(missing_ok=True)
    write_call(spec, problem, form, device, "sanitizer")
    turn = Turn(folder / "ready", folder / "go", nullcontext)  # the lane is held
    command = [
        *(str(program), "--tool", "memcheck", "--report-api-errors", "no"),
        *("--print-limit", str(SHOWN), "--log-file", str(report)),
        *(sys.executable, "-m", CALL, str(turn.ready), str(turn.go)),
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
        try:
            turn.wait(process, pipe, SANITIZE_S, str(spec))
        except subprocess.TimeoutExpired:
            return f"no end within {SANITIZE_S:g} s"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return report.read_text(errors="replace") if report.is_file() else ""


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

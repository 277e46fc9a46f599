"""One call of a kernel under Nsight Compute, whose processes are started ahead."""

import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path

from beamsearch.judge.capture.forms import Form
from beamsearch.judge.nvidia_tools.spec import CALL, write_call
from beamsearch.judge.sandbox.clean_environment import scrubbed_environment
from beamsearch.problem.problem import Problem
from kernel_profiling.errors import ProfilingError
from kernel_profiling.ncu.run import Begun, Turn
from kernel_profiling.profile import Profile

PROFILE_S = 180.0
"""Seconds a profile may take: a slow kernel is replayed tens of times."""
STANDING_BY = 2
"""Processes with everything imported that wait for a kernel to profile: as many as the parents of a
round's beam, whose profiles are wanted at once; one until the first kernel was profiled. They use
no GPU, but each takes a core for seconds to start."""
CLOSE_S = 5.0
"""Seconds in which whoever waits for a profile has heard that it was ended."""


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
            self._wanted = self._wanted or 1
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
            return begun

    def _fill(self) -> None:
        while len(self._waiting) < self._wanted:
            self._waiting.append(self._begin())

    def _begin(self, *, full: bool = False) -> Begun:
        folder = self._folder / str(next(self._number))
        folder.mkdir(parents=True, exist_ok=True)  # one that was killed left its own
        turn = Turn(folder, self._hold)
        command = [sys.executable, "-m", CALL, str(folder)]
        return Begun(command, cwd=folder, env=scrubbed_environment(), turn=turn, full=full)

    @contextmanager
    def _under_way(self, begun: Begun) -> Iterator[Begun]:
        """One that is used, and closed at the end. Then others start: no profile waits for them
        soon."""
        with self._lock:
            self._used.append(begun)
        try:
            with closing(begun):
                yield begun
        finally:
            with self._lock:
                self._used.remove(begun)
                self._lock.notify_all()
                if self._wanted:
                    self._wanted = STANDING_BY
                    with suppress(ProfilingError, OSError):  # the next profile says so
                        self._fill()

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

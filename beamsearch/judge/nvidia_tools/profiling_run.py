"""One call of a kernel under Nsight Compute, whose processes are started ahead."""

from __future__ import annotations

import itertools
import json
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, closing
from pathlib import Path
from typing import TYPE_CHECKING

from beamsearch.judge.capture.ahead import Form
from beamsearch.judge.runner.reference import problem_message
from beamsearch.judge.sandbox.clean_environment import scrubbed_environment
from beamsearch.judge.verification.input_set import derive_seed
from beamsearch.problem.problem import Problem
from kernel_profiling.profile import Profile

if TYPE_CHECKING:
    from kernel_profiling.ncu.run import Begun

PROFILE_S = 180.0
"""Seconds a profile may take: a slow kernel is replayed some forty times."""
PUBLIC_SEED = 0
"""Profiled inputs are nobody's secret: no verdict rests on them."""
STANDING_BY = 2
"""Processes with everything imported that wait for a kernel to profile: as many as the parents of a
round's beam, whose profiles are wanted at once. They use no GPU."""


def write_call(spec: Path, problem: Problem, form: Form, device: int, use: str) -> None:
    """What `beamsearch.judge.nvidia_tools.call` is to call; `use` names its inputs' seed."""
    spec.write_text(
        json.dumps(
            {
                "problem": problem_message(problem),
                "plan": form.plan.model_dump(mode="json"),
                "binaries": [b.model_dump(mode="json") for b in form.compiled.binaries],
                "device": device,
                "seed": derive_seed(PUBLIC_SEED, problem, use),
            }
        )
    )


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
        self._scratch = scratch
        self._hold = hold
        self._lock = threading.Lock()
        self._number = itertools.count()
        self._waiting: list[Begun] = []
        self._wanted = 0

    def profile(self, source_file: str, form: Form) -> Profile:
        """The profile of one bound call. Raises ProfilingError."""
        spec = Path(source_file).parent / "call.json"
        write_call(spec, self._problem, form, self._device, "profile")
        with closing(self._take()) as begun:
            profile = begun.profile(
                PROFILE_S,
                message=str(spec),
                kernels={kernel.name for kernel in form.plan.kernels},
                keep_report=spec.with_name("profile.ncu-rep"),  # taken from there by who wants it
            )
        chosen = {form.plan.kernels[s.kernel].name: s.config for s in form.plan.launches}
        launches = [
            launch.model_copy(update={"config": chosen.get(launch.name)})
            for launch in profile.launches
        ]
        return profile.model_copy(update={"launches": launches})

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

    def _begin(self) -> Begun:
        from kernel_profiling.ncu.run import Begun, Turn

        folder = self._scratch / "profilers" / str(next(self._number))
        folder.mkdir(parents=True, exist_ok=True)  # one that was killed left its own
        turn = Turn(folder / "ready", folder / "go", self._hold)
        return Begun(
            [
                sys.executable,
                "-m",
                "beamsearch.judge.nvidia_tools.call",
                str(turn.ready),
                str(turn.go),
            ],
            cwd=folder,
            env=scrubbed_environment(),
            turn=turn,
        )

    def close(self) -> None:
        """End the runs that stand by."""
        with self._lock:
            self._wanted = 0
            for begun in self._waiting:
                begun.close()
            self._waiting.clear()

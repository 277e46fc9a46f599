"""One call of a kernel under Nsight Compute."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

from beamsearch.judge.inputs import derive_seed
from beamsearch.judge.processes import scrubbed_environment
from beamsearch.judge.reference import problem_message
from beamsearch.judge.sources import triton_kernels
from beamsearch.problem import Problem
from profiling.profile import Profile

PROFILE_S = 180.0
"""Seconds a profile may take: a slow kernel is replayed some forty times."""
PUBLIC_SEED = 0
"""Profiled inputs are nobody's secret: no verdict rests on them."""


def profile_on_gpu(
    problem: Problem,
    source_file: str,
    source: str,
    device: int,
    scratch: Path,
    hold: Callable[[], AbstractContextManager[object]],
) -> Profile:
    """Nsight Compute's profile of one bound call. `hold` takes the lane, which is held while the
    GPU is used: not while Python starts, nor while the report is read. Raises ProfilingError."""
    from profiling.ncu import Turn, profile_command

    folder = Path(source_file).parent
    cache = scratch / "triton-cache" / folder.name  # the source's own
    spec = folder / "call.json"
    turn = Turn(folder / "ready", folder / "go", hold)
    spec.write_text(
        json.dumps(
            {
                "problem": problem_message(problem),
                "kernel": source_file,
                "device": device,
                "seed": derive_seed(PUBLIC_SEED, problem, "profile"),
                "ready": str(turn.ready),
                "go": str(turn.go),
            }
        )
    )
    return profile_command(
        [sys.executable, "-m", "beamsearch.judge.call", str(spec)],
        cwd=folder,
        env=scrubbed_environment() | {"TRITON_CACHE_DIR": str(cache)},
        timeout_s=PROFILE_S,
        kernels=triton_kernels(source),
        keep_report=folder / "profile.ncu-rep",  # in scratch: whoever wants it takes it from there
        turn=turn,
    )

"""What a kernel is measured against: the reference as PyTorch runs it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from beamsearch.baselines.cache import keep, read_kept
from beamsearch.gpu.environment import cache_folder
from beamsearch.gpu.machine import Machine
from beamsearch.problem.kernel import fingerprint
from beamsearch.problem.problem import Problem
from beamsearch.records.baselines import BASELINES, Baselines, baseline_subjects
from beamsearch.records.job import CompareJob, Comparison, Subject
from beamsearch.records.measurement import Measurement

ANCHOR = "anchor"


def no_baselines() -> Baselines:
    """Every baseline absent, for there is no GPU."""
    reason = "no NVIDIA GPU here: PyTorch's own kernels can be neither timed nor modelled"
    return Baselines(absent=dict.fromkeys(BASELINES, reason))


def measure_baselines(
    compare: Callable[[CompareJob], Comparison],
    input_source: str,
    *,
    problem: Problem,
    machine: Machine,
) -> Baselines:
    """Times of the reference in this visit, beside the input kernel; `compare` takes them.

    Measured once and kept for the same GPU, driver, torch, triton, problem, dtype and rule of
    precision, where the GPU is one of this machine. Kept times come from another visit: they
    are scaled by the input kernel's time now over its time then, and carry the visit of now.
    """
    path = _kept_file(problem, machine, input_source) if machine.measures else None
    kept = read_kept(path, Baselines) if path is not None else None
    anchor = Subject(name=ANCHOR, source=input_source)
    if kept is not None and kept.anchor is not None:
        now = compare(CompareJob(subjects=[anchor])).measurements.get(ANCHOR)
        if now is not None:
            return rescale(kept, now)
    comparison = compare(CompareJob(subjects=[*baseline_subjects(), anchor]))
    baselines = Baselines.of(comparison, ANCHOR)
    if path is not None and not baselines.absent:
        keep(path, baselines)
    return baselines


def rescale(kept: Baselines, now: Measurement) -> Baselines:
    """Baselines of another visit as they would be in this one, by the anchor timed in both."""
    assert kept.anchor is not None
    factor = now.time_ms / kept.anchor.time_ms

    def scale(then: Measurement | None) -> Measurement | None:
        if then is None or then.p20_ms is None or then.p80_ms is None:
            return None
        return then.model_copy(
            update={
                "time_ms": then.time_ms * factor,
                "p20_ms": then.p20_ms * factor,
                "p80_ms": then.p80_ms * factor,
                "visit": now.visit,
            }
        )

    return Baselines(
        eager=scale(kept.eager),
        compile=scale(kept.compile),
        max_autotune=scale(kept.max_autotune),
        anchor=now,
        rescaled_from=kept.anchor.visit,
    )


def _kept_file(problem: Problem, machine: Machine, input_source: str) -> Path:
    """The file named after everything that a baseline's time depends on, and its anchor."""
    here = machine.environment()
    facts = (
        here.gpu_uuid,
        here.driver,
        here.torch,
        here.triton,
        problem.source,
        problem.dtype,
        problem.precision,
        repr(sorted(problem.sizes.items())),
        fingerprint(input_source),
    )
    digest = hashlib.sha256("\0".join(map(str, facts)).encode()).hexdigest()[:24]
    return cache_folder() / "baselines" / f"{digest}.json"

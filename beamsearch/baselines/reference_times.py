"""What a kernel is measured against: the reference as PyTorch runs it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from beamsearch.baselines.cache import digest_of, read_cached, write_cached
from beamsearch.gpu.machine import Machine
from beamsearch.paths import cache_folder
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
    quick: bool,
) -> Baselines:
    """Times of the reference in this visit, beside the input kernel; `compare` takes them.

    Measured once and cached for the same GPU, driver, torch, triton, problem, dtype and rule of
    precision, where the GPU is one of this machine. Cached times come from another visit: they
    are scaled by the input kernel's time now over its time then, and carry the visit of now.
    """
    path = cache_file(problem, machine, input_source) if machine.device is not None else None
    cached = read_cached(path, Baselines) if path is not None else None
    anchor = Subject(name=ANCHOR, source=input_source)
    if cached is not None and cached.anchor is not None:
        again = CompareJob(subjects=[anchor], own_python="none")
        now = compare(again).measurements.get(ANCHOR)
        if now is not None:
            return rescale(cached, now)
    subjects = [*baseline_subjects(quick=quick), anchor]
    comparison = compare(CompareJob(subjects=subjects, own_python="none"))
    baselines = Baselines.of(comparison, ANCHOR)
    if path is not None and not baselines.absent:
        write_cached(path, baselines)
    return baselines


def rescale(cached: Baselines, now: Measurement) -> Baselines:
    """Baselines of another visit as they would be in this one, by the anchor timed in both."""
    assert cached.anchor is not None
    factor = now.time_ms / cached.anchor.time_ms
    scaled: dict[str, Measurement] = {}
    for name in BASELINES:
        then: Measurement | None = getattr(cached, name)
        if then is not None:
            scaled[name] = then.scaled(factor).with_values(visit=now.visit)
    return Baselines.model_validate(scaled | {"anchor": now, "rescaled_from": cached.anchor.visit})


def cache_file(problem: Problem, machine: Machine, input_source: str) -> Path:
    """The file named after everything that a baseline's time depends on, and its anchor."""
    here = machine.environment()
    name = digest_of(
        *(here.gpu_uuid, here.driver, here.torch, here.triton),
        *(
            problem.source,
            problem.dtype,
            problem.precision,
            problem.backward,
            sorted(problem.sizes.items()),
        ),
        fingerprint(input_source),
    )
    return cache_folder() / "baselines" / f"{name}.json"

"""What a kernel is measured against: the reference as PyTorch runs it, and the floor."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from beamsearch.environment import cache_folder, describe, devices, gpu_facts, gpu_state
from beamsearch.errors import BeamsearchError, UsageError
from beamsearch.executor.jobs import CompareJob, Executor, Subject
from beamsearch.executor.lane import Lane
from beamsearch.kernel import fingerprint
from beamsearch.problem import Problem, least_work
from beamsearch.records.measurement import Measurement
from beamsearch.records.run import Baselines
from beamsearch.records.trace import read_record, write_record

if TYPE_CHECKING:
    from profiling.gpus import Gpu
    from profiling.profile import Floor
    from profiling.roofline import Ceilings

NAMES = ("eager", "compile", "max_autotune")
ANCHOR = "anchor"


def measure_baselines(
    executor: Executor,
    input_source: str,
    *,
    problem: Problem | None = None,
    device: int | None = None,
) -> Baselines:
    """Times of the reference in this visit, beside the input kernel.

    Measured once and kept for the same GPU, driver, torch, triton, problem and dtype, where
    `problem` and `device` are given. Kept times come from another visit: they are scaled by the
    input kernel's time now over its time then, and carry the visit of now. Without a GPU every
    baseline is absent, with the reason.
    """
    if not executor.measures:
        reason = "no NVIDIA GPU here: PyTorch's own kernels can be neither timed nor modelled"
        return Baselines(absent=dict.fromkeys(NAMES, reason))
    path = None
    if problem is not None and device is not None:
        path = _kept_file(problem, device, input_source)
    kept = _read(path)
    anchor = Subject(name=ANCHOR, source=input_source)
    if kept is not None:
        now = executor.run(CompareJob(subjects=[anchor])).measurements.get(ANCHOR)
        if now is not None:
            return rescale(kept, now)
    subjects = [Subject(name="eager", kind="eager"), Subject(name="compile", kind="compile")]
    subjects += [Subject(name="max_autotune", kind="max_autotune"), anchor]
    comparison = executor.run(CompareJob(subjects=subjects))
    measured = comparison.measurements
    baselines = Baselines(
        eager=measured.get("eager"),
        compile=measured.get("compile"),
        max_autotune=measured.get("max_autotune"),
        anchor=measured.get(ANCHOR),
        absent=comparison.failed,
    )
    if path is not None and not baselines.absent:
        _keep(path, baselines)
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


def _kept_file(problem: Problem, device: int, input_source: str) -> Path:
    """The file named after everything that a baseline's time depends on, and its anchor."""
    machine = describe(device)
    facts = (
        machine.gpu_uuid,
        machine.driver,
        machine.torch,
        machine.triton,
        problem.source,
        problem.dtype,
        repr(sorted(problem.sizes.items())),
        fingerprint(input_source),
    )
    digest = hashlib.sha256("\0".join(map(str, facts)).encode()).hexdigest()[:24]
    return cache_folder() / "baselines" / f"{digest}.json"


def _read(path: Path | None) -> Baselines | None:
    """What is kept, or None: a file of an older format or half gone is measured anew."""
    if path is None or not path.is_file():
        return None
    try:
        kept = read_record(path, Baselines)
    except UsageError:
        return None
    return kept if kept.anchor is not None else None


def _keep(path: Path, record: Baselines | Ceilings) -> None:
    """Keep a record for the next run; where the folder cannot be written nothing is kept, which
    costs the next run some time and no correctness (`doctor` says so)."""
    try:
        write_record(path, record)
    except (UsageError, OSError):
        return


CEILINGS_TIMEOUT_S = 300.0
"""Measuring takes seconds, compiling its kernels on a slow machine a minute."""


def measure_floor(problem: Problem, gpu: Gpu | str, device: int | None) -> Floor:
    """The least time of the problem's least work on this GPU.

    `gpu`: the part, or its name. The rates are those measured on this device at the problem's own
    mix of reads and writes, once for each driver; without a device the datasheet's.
    Raises BeamsearchError where measuring fails.
    """
    from profiling.roofline import make_floor

    work = least_work(problem)
    ceilings = None
    if device is not None:
        share = round(work.bytes_read / max(1, work.least_bytes), 2)
        ceilings = _ceilings(problem.dtype, share, device)
    part = gpu_facts(device, gpu) if isinstance(gpu, str) else gpu
    return make_floor(
        work.bytes_read, work.bytes_written, work.flops, problem.dtype, part, ceilings
    )


def _ceilings(dtype: str, read_share: float, device: int) -> Ceilings:
    """What was kept for this device and driver, else measured now, alone on the GPU."""
    from profiling.roofline import Ceilings

    used = devices()[device]
    driver = gpu_state(used.uuid).driver
    name = f"{used.uuid}-{driver}-{dtype}-{read_share:.2f}.json"
    path = cache_folder() / "ceilings" / name
    if path.is_file():
        try:
            return read_record(path, Ceilings)
        except UsageError:
            pass  # an older format: measured anew
    with Lane(used.uuid).held():
        ceilings = _measure_ceilings(dtype, read_share, device)
    _keep(path, ceilings)
    return ceilings


def _measure_ceilings(dtype: str, read_share: float, device: int) -> Ceilings:
    """In a process of its own, so that this one never holds the GPU."""
    from profiling.roofline import Ceilings

    code = (
        "from profiling.roofline import measure_ceilings\n"
        f"print(measure_ceilings({dtype!r}, {read_share!r}, {device}).model_dump_json())"
    )
    try:
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            timeout=CEILINGS_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise BeamsearchError(
            f"measuring this GPU's rates took over {CEILINGS_TIMEOUT_S:.0f} s; see with "
            "`python -m beamsearch doctor` who else uses it"
        ) from error
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise BeamsearchError(f"this GPU's rates cannot be measured: {last}")
    return Ceilings.model_validate_json(done.stdout.splitlines()[-1])

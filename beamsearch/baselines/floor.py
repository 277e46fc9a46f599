"""The floor of a problem on the GPU at hand, and the ceilings that are measured for it.

`python -m beamsearch.baselines.floor PRODUCTS READ_SHARE DEVICE` measures and prints the ceilings.
"""

from __future__ import annotations

import sys
from pathlib import Path

from beamsearch.baselines.cache import cached, read_cached, write_cached
from beamsearch.baselines.process import answer_of
from beamsearch.baselines.redundant_work import gives_away
from beamsearch.errors import BeamsearchError
from beamsearch.gpu.environment import devices
from beamsearch.gpu.gauges import gpu_state
from beamsearch.gpu.machine import Machine
from beamsearch.gpu.usage import Usage
from beamsearch.paths import cache_folder
from beamsearch.problem.least_work import LeastWork, least_work
from beamsearch.problem.problem import Problem
from beamsearch.records.measurement import Measurement
from kernel_profiling.floor.roofline import (
    Ceilings,
    corrected_floor,
    make_floor,
    measure_ceilings,
)
from kernel_profiling.gpus import Gpu
from kernel_profiling.profile import Floor, GivesAway

CEILINGS_TIMEOUT_S = 300.0
"""Measuring takes seconds, compiling its kernels on a slow machine a minute."""


def measure_floor(problem: Problem, machine: Machine, usage: Usage | None = None) -> Floor:
    """The least time of the problem's least work on this GPU.

    `usage`: the account that its time on the lane goes to. The rates are those measured on this
    GPU at the problem's own mix of reads and writes, once for each driver; where it is not here,
    the datasheet's. FLOPs count at the rate of the cheapest format that the problem's rule of
    precision allows (`LeastWork.products`). What no output depends on need not be read, where this
    was seen at the true shapes. Raises BeamsearchError where measuring fails.
    """
    work = least_work(problem)
    ceilings = None
    if machine.device is not None:
        ceilings = _ceilings(work, machine.device, usage)
    given = gives_away(problem, machine.device, usage)
    return floor_of(work, given, machine.gpu, ceilings).with_values(gpu_uuid=machine.uuid)


def floor_of(work: LeastWork, given: GivesAway, gpu: Gpu, ceilings: Ceilings | None) -> Floor:
    """The least time of this work; by the datasheet where there are no ceilings."""
    unused = sum(work.read.get(name, 0) * share for name, share in given.unused.items())
    needed = work.bytes_read - round(unused if given.true_shapes else 0)
    floor = make_floor(needed, work.bytes_written, work.flops, work.products, gpu, ceilings)
    return floor.with_values(gives_away=given)


def beaten_floor(problem: Problem, floor: Floor, time: Measurement, machine: Machine) -> Floor:
    """The floor once a verified kernel, or the reference, took so long: never above that time.

    It is lower where a measured ceiling was beaten, the record is from before unused inputs were
    left out, or something else of it is wrong; then it says so (`Floor.corrected`). What moved the
    least bytes faster than this GPU was seen to is from then on its measured ceiling, as far as the
    datasheet allows. A problem that may stay in the L2 says nothing about device memory, and 1% is
    noise.
    """
    if machine.device is None or time.source != "measured":
        return floor
    part, work = machine.gpu, least_work(problem)
    if time.time_ms < floor.time_ms:
        floor = measure_floor(problem, machine)
    reached = floor.least_bytes / time.time_ms / 1e6
    if floor.least_bytes >= 4 * part.l2_bytes and reached > 1.01 * floor.bandwidth_gb_s:
        path = _ceilings_file(work, machine.device)
        known = read_cached(path, Ceilings)
        if known is not None and known.bandwidth_gb_s < reached:
            write_cached(path, known.with_values(bandwidth_gb_s=reached))
            floor = measure_floor(problem, machine)
    return corrected_floor(floor, work.bytes_written, part, time.time_ms)


def _read_share(work: LeastWork) -> str:
    """Share of the least bytes that are read, in hundredths."""
    return f"{work.bytes_read / max(1, work.least_bytes):.2f}"


def _ceilings_file(work: LeastWork, device: int) -> Path:
    used = devices()[device]
    name = f"{used.uuid}-{gpu_state(used.uuid).driver}-{work.products}-{_read_share(work)}.json"
    return cache_folder() / "ceilings" / name


def _ceilings(work: LeastWork, device: int, usage: Usage | None) -> Ceilings:
    """What is cached for this device and driver, else measured now, alone on the GPU."""
    command = ["beamsearch.baselines.floor", work.products, _read_share(work), str(device)]
    uuid = devices()[device].uuid
    try:
        return cached(
            _ceilings_file(work, device),
            Ceilings,
            lambda: answer_of(command, Ceilings, CEILINGS_TIMEOUT_S, uuid, usage=usage),
        )
    except BeamsearchError as error:
        raise BeamsearchError(
            f"this GPU's rates cannot be measured: {error}; see with "
            "`python -m beamsearch doctor` who else uses it"
        ) from error


if __name__ == "__main__":
    products, read_share, device = sys.argv[1:]
    ceilings = measure_ceilings(products, float(read_share), int(device))
    sys.stdout.write(ceilings.model_dump_json() + "\n")

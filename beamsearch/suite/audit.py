"""Whether a problem can tell a good kernel from a bad one, and a fast one from a slow one."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from beamsearch.baselines.floor import floor_of
from beamsearch.baselines.redundant_work import SHRUNK_ELEMENTS, examine_reference
from beamsearch.errors import ProblemError
from beamsearch.problem.instance import Instance, instantiate
from beamsearch.problem.least_work import least_work
from beamsearch.problem.outputs import outputs_of
from beamsearch.problem.problem import Problem, name_of, read_problem
from beamsearch.problem.scale import at_scale
from beamsearch.problem.shrink import shrink
from beamsearch.records.audit import Audit, Fault
from beamsearch.suite.removable import removable_work
from kernel_profiling.errors import one_line
from kernel_profiling.gpus import Gpu
from kernel_profiling.profile import GivesAway

CLOSE = 0.01
"""What the filters that METR and robust-kbench published for KernelBench call no difference: its
tolerance was 0.01, so that a kernel that returns a constant passed."""
DRAWS = 5
"""Seeds that outputs are looked at with, as in those filters."""
EXAMINED_S = 4.0
"""Seconds for what inputs and weights matter to; the first draw is always looked at."""
IDLE_OUTPUTS = 0.25
"""Share of the outputs that are the same whatever the inputs, from which on that is a fault."""
LAUNCH_MS = 0.01
"""A floor below that is hidden behind the launches of a handful of kernels, 2 to 4 us each."""
MOST_REMOVABLE = 4
"""Sentences on removable work that are told."""


def audit(path: Path, gpu: Gpu, *, quick: bool = False, scale: float | None = None) -> Audit:
    """One problem's file, without a GPU: at shrunk shapes, its floor by the datasheet of `gpu`.
    `quick` leaves out which inputs and weights matter; `scale` as in `at_scale`."""
    begun = time.monotonic()
    found = Audit(name=name_of(path), path=str(path))
    try:
        found = _audited(at_scale(read_problem(path), scale), gpu, found, EXAMINED_S * (not quick))
    except ProblemError as error:
        found = found.with_values(failed=str(error))
    return found.with_values(seconds=round(time.monotonic() - begun, 2))


def _audited(problem: Problem, gpu: Gpu, found: Audit, seconds: float) -> Audit:
    work = least_work(problem)
    whole = instantiate(problem, "meta")
    given = GivesAway()
    try:
        small: dict[str, int] | None = dict(shrink(problem).sizes)
        not_shrunk = None
    except ProblemError as error:
        small, not_shrunk = None, str(error)
    faults = [
        Fault(flaw="removable work", told=told) for told in removable_work(whole)[:MOST_REMOVABLE]
    ]
    draws, not_examined = 0, None
    try:
        faults += _faults_of_outputs(shrink(problem, SHRUNK_ELEMENTS))
        draws = DRAWS
        given = examine_reference(problem, "cpu", seconds) if seconds else given
    except (ProblemError, RuntimeError) as error:  # some write in place what autograd needs
        not_examined = one_line(str(error))
    if given.sentence and _is_idle(given):
        faults.append(Fault(flaw="idle data", told=given.sentence))
    floor = floor_of(work, given, gpu, None)
    if floor.time_ms < LAUNCH_MS:
        told = f"the floor is {1e3 * floor.time_ms:.1f} us: launches take longer"
        faults.append(Fault(flaw="launch overhead", told=told))
    return found.with_values(
        dtype=problem.dtype,
        least_bytes=floor.least_bytes,
        flops=work.flops,
        floor_ms=floor.time_ms,
        bound_names=len(whole.arguments.values),
        shrunk=small,
        not_shrunk=not_shrunk,
        draws=draws,
        not_examined=not_examined,
        gives_away=given,
        faults=faults,
    )


def _is_idle(given: GivesAway) -> bool:
    """Whether so much makes no difference that it decides who wins; borders that a window never
    reaches do not."""
    still = given.zero_outputs + given.constant_outputs
    return (
        still > IDLE_OUTPUTS or bool(given.repeated) or max(given.unused.values(), default=0) == 1
    )


def _faults_of_outputs(problem: Problem) -> Iterator[Fault]:
    """What the published filters look for, on the problem's own inputs."""
    instances = [instantiate(problem, "cpu", seed) for seed in range(DRAWS)]
    drawn = [_outputs(one.model, one) for one in instances]
    same_weights = [_outputs(instances[0].model, one) for one in instances]
    for number, outputs in enumerate(zip(*drawn, strict=True)):
        which = f"output {number}" if len(drawn[0]) > 1 else "the output"
        if outputs[0].numel() and outputs[0].is_floating_point():
            yield from _faults_of(which, torch.stack(outputs))
            moved = torch.stack([one[number] for one in same_weights])
            if _varies_little(moved, 0):
                told = f"other inputs change {which} by less than {CLOSE} (standard deviation)"
                yield Fault(flaw="inputs hardly matter", told=told)


def _faults_of(which: str, outputs: torch.Tensor) -> Iterator[Fault]:
    """Of one output, drawn several times; the first dimension is that of the draws."""
    if bool((outputs.abs() < CLOSE).all()):
        largest = float(outputs.abs().max())
        yield Fault(flaw="tiny outputs", told=f"{which} is within ±{CLOSE} (at most {largest:.2g})")
    if _varies_little(outputs, 0):
        yield Fault(
            flaw="same for any seed", told=f"{which} is the same for any seed, up to {CLOSE}"
        )
    flat = [
        dimension - 1
        for dimension in range(1, outputs.dim())
        if outputs.shape[dimension] > 1 and _varies_little(outputs, dimension)
    ]
    if flat and not bool((outputs.abs() < CLOSE).all()):  # which says it all
        where = ", ".join(map(str, flat))
        told = f"{which} is constant along dimension {where}, up to {CLOSE}"
        yield Fault(flaw="constant along an axis", told=told)


def _varies_little(values: torch.Tensor, dimension: int) -> bool:
    return bool((values.std(dim=dimension) < CLOSE).all())


def _outputs(model: torch.nn.Module, inputs: Instance) -> Sequence[torch.Tensor]:
    with torch.inference_mode():
        return [out.detach().float() for out in outputs_of(model(*inputs.inputs))]

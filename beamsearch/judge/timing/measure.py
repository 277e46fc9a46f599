"""Measurements of one visit to a GPU: of a candidate alone, and of several subjects in turn."""

from __future__ import annotations

import statistics
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from beamsearch.gpu.gauges import GpuState, gpu_state
from beamsearch.gpu.stopwatch import flush_bytes
from beamsearch.judge.capture.ahead import Form
from beamsearch.judge.rejection import FIRST_CALL_S, GPU_CALL_S, Log, Rejected, guarded
from beamsearch.judge.runner.client import Replay, RunnerProcess
from beamsearch.judge.timing.comparison import Comparer
from beamsearch.judge.timing.least import needed_share
from beamsearch.judge.timing.least_time import below_arithmetic, impossible
from beamsearch.judge.timing.timing import (
    NAME,
    Sample,
    TimedInputs,
    believe,
    checked_share,
    prepare,
    repetitions,
    time_calls,
    undisturbed,
)
from beamsearch.judge.verification.input_set import InputSet
from beamsearch.judge.verification.inputs import InputSets
from beamsearch.problem.least_work import least_work
from beamsearch.problem.problem import Problem
from beamsearch.records.job import Comparison, Subject
from beamsearch.records.measurement import Measurement
from beamsearch.records.verdict import Outcome, Stage

if TYPE_CHECKING:
    from kernel_profiling.gpus import Gpu

FLUSH_SHARE = 0.5
"""Part of the datasheet's bandwidth at which the L2 is flushed, at least; an H200 reaches 0.7."""
LIBRARY_SHARE = 1 / 3
"""Part of a call's time that torch's own operations may take. A kernel that leaves a last sum over
partial results to PyTorch stays below it (a fifth to a quarter on an H200); one that leaves the
operation there, and launches a Triton kernel for show, does not."""
PLAIN_CALLS = 5
"""Timed calls without a graph."""


class Visit:
    """One stay on one GPU. Everything here needs the lane."""

    def __init__(self, problem: Problem, gpu: Gpu, device: int) -> None:
        import torch

        properties = torch.cuda.get_device_properties(device)
        self.device_name: str = properties.name
        self.gpu_uuid = f"GPU-{properties.uuid}"
        self.l2_bytes = int(getattr(properties, "L2_cache_size", 0)) or gpu.l2_bytes
        self._visit = uuid.uuid4().hex[:12]
        self._problem = problem
        self._gpu = gpu
        self._device = f"cuda:{device}"
        self._work = least_work(problem)
        self._needed_share: float | None = None

    def measure(self, replay: Replay, timed: TimedInputs, log: Log) -> Measurement:
        """Time a candidate that is right so far. Raises Rejected."""
        before = gpu_state(self.gpu_uuid)
        estimate = prepare(replay, timed, FIRST_CALL_S)
        count = repetitions(estimate)
        samples = undisturbed(lambda: self._samples(replay, timed, count))
        graph = not replay.no_graph
        plain = time_calls(replay, timed, PLAIN_CALLS, checked_share(PLAIN_CALLS), plain=True)
        measurement = self.measurement(samples, before, graph=graph, plain=plain)
        calls = f"{len(samples)} calls on new values" + ("" if graph else f"; {replay.no_graph}")
        log.passed(Stage.TIMING, "clocks", calls)
        self._check_share(replay, measurement.time_ms, log)
        reason = impossible(measurement.time_ms, self._work, self._gpu, self.l2_bytes, self._needed)
        if reason:
            raise Rejected(Outcome.DISALLOWED, Stage.TIMING, reason)
        if told := below_arithmetic(measurement.time_ms, self._work, self._gpu):
            log.reported(Stage.TIMING, "floor", False, told)
        return measurement

    def _samples(self, replay: Replay, timed: TimedInputs, count: int) -> list[Sample]:
        """So many timed calls. Raises Rejected, and Shared."""
        samples = time_calls(replay, timed, count, checked_share(count))
        believe(samples, timed.flush_ms, replay.empty)
        return samples

    def _check_share(self, replay: Replay, whole: float, log: Log) -> None:
        """Torch's own operations take a third of a call at most, of whose time the results were
        compared: a kernel may take longer where it does no good. Raises Rejected."""
        told = guarded(Stage.TIMING, "timing", lambda: replay.ask("share", GPU_CALL_S, name=NAME))
        part = float(told["operations_ms"])
        if not part:
            return
        if part > LIBRARY_SHARE * whole:
            reason = (
                f"torch's own operations take {part:.4g} ms of {whole:.4g} ms; a third is the "
                "most: do this work in a Triton kernel"
            )
            raise Rejected(Outcome.DISALLOWED, Stage.TIMING, reason)
        log.passed(Stage.TIMING, "kernels", f"{part / whole:.0%} of the time in torch's operations")

    def compare(
        self,
        subjects: list[Subject],
        forms: Mapping[str, Form],
        timed: TimedInputs,
        open_runner: Callable[..., RunnerProcess],
    ) -> Comparison:
        """Times of several subjects, interleaved; `forms` are the kernels' plans."""
        before = gpu_state(self.gpu_uuid)
        comparer = Comparer(self._problem, timed, open_runner)
        comparer.run(subjects, forms)
        graphs = comparer.graphs
        return Comparison(
            measurements={
                name: self.measurement(
                    [sample for turn in turns for sample in turn],
                    before,
                    graph=graphs[name],
                    plain=comparer.plain[name],
                )
                for name, turns in comparer.turns.items()
            },
            failed=comparer.failed,
            turns={
                name: [statistics.median(sample.ms for sample in turn) for turn in turns]
                for name, turns in comparer.turns.items()
            },
        )

    def timed_inputs(self, sets: InputSets, bound: list[InputSet]) -> TimedInputs:
        """The set to time on: of the problem's own distribution where one proves something."""
        kept = [inputs for inputs in bound if inputs.shared is not None]
        own = [inputs for inputs in kept if inputs.distribution == "own"]
        flush_ms = flush_bytes(self.l2_bytes) / (FLUSH_SHARE * self._gpu.bandwidth_gb_s * 1e6)
        return TimedInputs(sets, (own or kept)[0], flush_ms)

    def _needed(self) -> float:
        if self._needed_share is None:
            self._needed_share = needed_share(self._problem, self._device)
        return self._needed_share

    def measurement(
        self,
        samples: Sequence[Sample],
        before: GpuState,
        *,
        graph: bool,
        plain: Sequence[Sample],
    ) -> Measurement:
        """Samples as a record. `before`: the gauges ahead of the first."""
        times_ms = [sample.ms for sample in samples]
        after = gpu_state(self.gpu_uuid)
        fifths = statistics.quantiles(times_ms, n=5, method="inclusive")
        return Measurement(
            source="measured",
            time_ms=statistics.median(times_ms),
            p20_ms=fifths[0],
            p80_ms=fifths[3],
            count=len(times_ms),
            gpu=self.device_name,
            gpu_uuid=self.gpu_uuid,
            visit=self._visit,
            graph=graph,
            plain_ms=statistics.median(sample.ms for sample in plain),
            clock_start_mhz=before.sm_clock_mhz,
            clock_end_mhz=after.sm_clock_mhz,
            temperature_c=before.temperature_c,
        )

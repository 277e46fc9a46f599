"""Measurements of one visit to a GPU: of a candidate alone, and of several subjects in turn."""

from __future__ import annotations

import statistics
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from beamsearch.executor.jobs import Comparison, Subject, Sweep
from beamsearch.judge.agreement import below_arithmetic, flush_ms, impossible
from beamsearch.judge.comparison import Comparer
from beamsearch.judge.gauges import Gauges, Reading
from beamsearch.judge.inputs import InputSet, InputSets
from beamsearch.judge.least import needed_share
from beamsearch.judge.processes import CandidateProcess
from beamsearch.judge.sources import triton_kernels
from beamsearch.judge.stopwatch import flush_bytes
from beamsearch.judge.sweep import Forms, Sweeper
from beamsearch.judge.timing import TimedSets, time_calls, watch_calls
from beamsearch.judge.verify import Log, Rejected
from beamsearch.problem import Problem, least_work
from beamsearch.records.measurement import Measurement
from beamsearch.records.verdict import Outcome, Stage

if TYPE_CHECKING:
    from profiling.gpus import Gpu


class Visit:
    """One stay on one GPU. Everything here needs the lane."""

    def __init__(self, problem: Problem, gpu: Gpu, device: int) -> None:
        import torch

        properties = torch.cuda.get_device_properties(device)
        self.device_name: str = properties.name
        self.gpu_uuid = f"GPU-{properties.uuid}"
        self.l2_bytes = int(getattr(properties, "L2_cache_size", 0)) or gpu.l2_bytes
        self.lists_kernels = False
        """Whether CUPTI is known to work here, so that no candidate may say otherwise."""
        self._visit = uuid.uuid4().hex[:12]
        self._problem = problem
        self._gpu = gpu
        self._device = f"cuda:{device}"
        self._work = least_work(problem)
        self._gauges = Gauges(self.gpu_uuid)
        self._needed_share: float | None = None
        self._timed: TimedSets | None = None

    def measure(
        self,
        process: CandidateProcess,
        source: str,
        sets: InputSets,
        bound: list[InputSet],
        log: Log,
    ) -> Measurement:
        """Time a candidate that is right so far, bound to these sets. Raises Rejected.

        `restore` must follow, once the candidate's process has ended.
        """
        timed = self._timed = self._timed_sets(sets, bound)
        before = self._gauges.read()
        times = time_calls(process, timed)
        measurement = self._measurement(times, before)
        log.passed(Stage.TIMING, "clocks", f"{len(times)} calls, the clocks agree")
        own = triton_kernels(source)
        watch_calls(process, timed, own, measurement.time_ms, log, must_tell=self.lists_kernels)
        timed.check_unchanged()
        reason = impossible(measurement.time_ms, self._work, self._gpu, self.l2_bytes, self._needed)
        if reason:
            raise Rejected(Outcome.DISALLOWED, Stage.TIMING, reason)
        if told := below_arithmetic(measurement.time_ms, self._work, self._gpu):
            log.reported(Stage.TIMING, "floor", False, told)
        return measurement

    def compare(
        self,
        subjects: list[Subject],
        sets: InputSets,
        bound: list[InputSet],
        scratch: Path,
        open_process: Callable[..., CandidateProcess],
    ) -> Comparison:
        """Times of several subjects, interleaved."""
        timed = self._timed = self._timed_sets(sets, bound)
        before = self._gauges.read()
        try:
            batches, failed = Comparer(self._problem, timed, scratch).run(subjects, open_process)
        finally:
            self.restore()
        times = {
            name: [time_ms for batch in done for time_ms in batch.times_ms]
            for name, done in batches.items()
        }
        return Comparison(
            measurements={name: self._measurement(value, before) for name, value in times.items()},
            failed=failed,
            turns={
                name: [statistics.median(batch.times_ms) for batch in done]
                for name, done in batches.items()
            },
        )

    def sweep(
        self,
        forms: Forms,
        sets: InputSets,
        bound: list[InputSet],
        open_process: Callable[..., CandidateProcess],
        mend: Callable[[], None],
    ) -> Sweep:
        """Times of forms of one kernel. `restore` must follow."""
        timed = self._timed = self._timed_sets(sets, bound)
        return Sweeper(forms, timed, open_process, mend).run()

    def restore(self) -> None:
        """Give timed sets their own values again; no candidate may be alive, and in the way."""
        timed, self._timed = self._timed, None
        if timed is not None:
            timed.restore()

    def _needed(self) -> float:
        if self._needed_share is None:
            self._needed_share = needed_share(self._problem, self._device)
        return self._needed_share

    def _timed_sets(self, sets: InputSets, bound: list[InputSet]) -> TimedSets:
        """Two sets of the problem's own distribution where they prove something, else what does."""
        kept = [inputs for inputs in bound if inputs.shared is not None]
        own = [inputs for inputs in kept if inputs.distribution == "own"]
        chosen = (own if len(own) >= 2 else kept)[:2]
        names = [f"{Stage.TRUE_SHAPES.value} {inputs.label}" for inputs in chosen]
        return TimedSets(sets, chosen, names, flush_ms(flush_bytes(self.l2_bytes), self._gpu))

    def _measurement(self, times_ms: list[float], before: Reading) -> Measurement:
        after = self._gauges.read()
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
            clock_start_mhz=before.sm_clock_mhz,
            clock_end_mhz=after.sm_clock_mhz,
            temperature_c=before.temperature_c,
        )

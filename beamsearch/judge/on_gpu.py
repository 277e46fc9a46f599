"""The judge where there is a GPU: verified and timed on it, one candidate at a time."""

from __future__ import annotations

import os
import statistics
import threading
import uuid
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from beamsearch.errors import BeamsearchError, KernelError, ProblemError
from beamsearch.executor.jobs import Comparison, Judgement, Subject
from beamsearch.executor.lane import Lane
from beamsearch.judge.agreement import flush_ms, impossible
from beamsearch.judge.comparison import Comparer
from beamsearch.judge.gauges import Gauges, Reading
from beamsearch.judge.inputs import InputSet, InputSets, meta_arguments
from beamsearch.judge.least import needed_share
from beamsearch.judge.memory import SharedMemory
from beamsearch.judge.processes import (
    CandidateError,
    CandidateProcess,
    DeadlineMissed,
    ForkServers,
    ProcessDied,
)
from beamsearch.judge.profiling_run import profile_on_gpu
from beamsearch.judge.sources import source_key, source_of, triton_kernels, write_source
from beamsearch.judge.stopwatch import flush_bytes
from beamsearch.judge.timing import TimedSets, time_calls, watch_calls
from beamsearch.judge.verify import (
    COMPILE_S,
    GPU_CALL_S,
    Log,
    Rejected,
    check_policy,
    compile_call,
    load,
    run_sets,
)
from beamsearch.judge.walls import FILES, NETWORK, PROCESSES, USER
from beamsearch.problem import Problem, least_work, shrink
from beamsearch.records.measurement import Measurement
from beamsearch.records.verdict import Outcome, Stage
from profiling.errors import NcuMissing, NcuPermission, NcuTooOld, ProfilingError
from profiling.profile import Profile

if TYPE_CHECKING:
    from profiling.gpus import Gpu

OPEN_S = 60.0
"""Seconds for a CUDA context, which takes under one."""


class MeasuringJudge:
    """Judges, times and profiles kernels on one GPU; thread-safe.

    The judge's process holds reference, oracle and input memory on the same GPU; candidates map the
    inputs. Raises ProblemError where the problem does not fit on the GPU.
    """

    def __init__(
        self,
        problem: Problem,
        gpu: Gpu,
        *,
        device: int,
        servers: ForkServers,
        scratch: Path,
        seed: int,
        use_ncu: bool = True,
    ) -> None:
        import torch

        properties = torch.cuda.get_device_properties(device)
        torch.cuda.set_device(device)
        self.device_name: str = properties.name
        self._uuid = f"GPU-{properties.uuid}"
        self._visit = uuid.uuid4().hex[:12]
        self._problem = problem
        self._gpu = gpu
        self._device = device
        self._l2_bytes = int(getattr(properties, "L2_cache_size", 0)) or gpu.l2_bytes
        self._servers = servers
        self._scratch = scratch
        self._seed = seed
        self._lane = Lane(self._uuid)
        self._compilers = threading.BoundedSemaphore(max(1, (os.cpu_count() or 2) // 2))
        self._memory = memory = SharedMemory(f"cuda:{device}")
        self._true = InputSets(problem, f"cuda:{device}", memory, seed)
        self._smoke: InputSets | None = None
        self._no_smoke = ""
        try:
            self._smoke = InputSets(shrink(problem), f"cuda:{device}", memory, seed)
        except ProblemError as error:
            self._no_smoke = f"shrunk shapes: {error}"
        self._work = least_work(problem)
        self._needed_share: float | None = None
        self._gauges = Gauges(self._uuid)
        self._ready = False
        self._compiled: dict[str, Profile] = {}
        self._profiles: dict[str, Profile] = {}
        self._no_ncu: str | None = None if use_ncu else "Nsight Compute was not asked for"
        self._lock = threading.Lock()

    def judge(self, subject: Subject) -> Judgement:
        """Verdict, and the measured time where it is correct."""
        source = source_of(subject)
        log = Log()
        try:
            check_policy(source, log)
            path = write_source(self._scratch, source)
            self._prepare()
            self._compile_ahead(source, path, log)
            with self._lane.held():
                measurement = self._on_gpu(source, path, log)
        except Rejected as rejection:
            return Judgement(verdict=log.rejected(rejection))
        return Judgement(verdict=log.correct(), measurement=measurement)

    def _compile_ahead(self, source: str, path: str, log: Log) -> None:
        """Compile for the true shapes while somebody else has the GPU.

        The GPU then finds the code in the run's compile cache. What fails here on `meta` tensors
        alone may still run, so only the GPU's word counts; except for a source that cannot even be
        imported, or never ends.
        """
        arguments = meta_arguments(self._problem)
        gpu = self._gpu.model_dump(mode="json")
        key = source_key(source)
        forked = self._servers.fork("normal", key=key, limit_memory=False)
        with self._compilers, forked as process:
            try:
                load(process, path)
                log.passed(Stage.LOAD, "import")
                profile = compile_call(process, arguments, gpu, log)
                with self._lock:
                    self._compiled[key] = profile
                self._compile_smoke(process, gpu)
            except Rejected as rejection:
                if rejection.stage is Stage.LOAD or rejection.outcome is Outcome.TIMEOUT:
                    raise
                log.not_checked.append(f"compilation without a GPU: {rejection.reason}")
            finally:
                process.end()
                log.output.append(process.output)

    def _compile_smoke(self, process: CandidateProcess, gpu: dict[str, Any]) -> None:
        """The same for the shrunk shapes, for the cache alone: what fails here says nothing."""
        if self._smoke is not None:
            arguments = meta_arguments(self._smoke.problem)
            with suppress(CandidateError, ProcessDied, DeadlineMissed):
                process.ask("compile", COMPILE_S, arguments=arguments, gpu=gpu)

    def _prepare(self) -> None:
        """Once, before the first candidate: which walls CUDA works behind, and in the compile cache
        what every kernel's launch needs."""
        with self._lock, self._lane.held():
            if self._ready:
                return
            self._true.get(own=2, normal=1)
            if reason := self._memory.same_user:
                for wall in (USER, PROCESSES):
                    self._servers.leave_out(wall, f"the GPU's memory is shared otherwise: {reason}")
            with self.open_process(trusted=True) as process:
                process.ask("prepare", COMPILE_S)
            for wall in (FILES, NETWORK, PROCESSES, USER):
                try:
                    self.open_process().end()
                    break
                except BeamsearchError:  # one wall less, until CUDA starts
                    self._servers.leave_out(wall, "CUDA does not start behind it")
            self._ready = True

    def walls(self) -> dict[str, str]:
        """Wall -> why candidates do without it here, "" where it stands."""
        self._prepare()
        return self._servers.walls()

    def _on_gpu(self, source: str, path: str, log: Log) -> Measurement:
        import torch

        true = self._true.get(own=2, normal=1)
        timed = self._timed_sets(true)
        with self.open_process(key=source_key(source)) as process:
            try:
                load(process, path)
                self._run_smoke(process, log)
                run_sets(process, self._true, true, Stage.TRUE_SHAPES, log, GPU_CALL_S)
                before = self._gauges.read()
                times = time_calls(process, timed)
                measurement = self._measurement(times, before)
                log.passed(Stage.TIMING, "events", f"{len(times)} calls, the clocks agree")
                watch_calls(process, timed, triton_kernels(source), measurement.time_ms, log)
                self._check_possible(measurement.time_ms)
            except torch.OutOfMemoryError as error:
                reason = "takes so much GPU memory that none is left to check its results with"
                raise Rejected(Outcome.CRASHED, Stage.TRUE_SHAPES, reason) from error
            finally:
                process.end()
                log.output.append(process.output)
        return measurement

    def _check_possible(self, time_ms: float) -> None:
        """No time that the memory could not do. Raises Rejected."""

        def needed() -> float:
            if self._needed_share is None:
                self._needed_share = needed_share(self._problem, f"cuda:{self._device}")
            return self._needed_share

        reason = impossible(time_ms, self._work, self._gpu, self._l2_bytes, needed)
        if reason:
            raise Rejected(Outcome.DISALLOWED, Stage.TIMING, reason)

    def _run_smoke(self, process: CandidateProcess, log: Log) -> None:
        """Shrunk shapes first; a kernel that raises there may be made for the true ones."""
        if self._smoke is None:
            log.not_checked.append(self._no_smoke)
            return
        sets = self._smoke.get(own=1, normal=1)
        try:
            run_sets(process, self._smoke, sets, Stage.SMOKE, log, GPU_CALL_S)
        except Rejected as rejection:
            if not rejection.raised:
                raise
            log.failed(
                Stage.SMOKE,
                "shrunk shapes",
                f"specialised to its own shapes: {rejection.reason}",
            )

    def open_process(self, **options: Any) -> CandidateProcess:
        """A process with a CUDA context and no candidate in it yet. Needs the lane."""
        process = self._servers.fork("normal", limit_memory=False, **options)
        try:
            process.ask("open", OPEN_S, device=self._device, l2_bytes=self._l2_bytes)
        except (CandidateError, ProcessDied, DeadlineMissed) as error:
            process.end()
            raise BeamsearchError(
                f"the GPU gives no context to a candidate's process: {error}; see `nvidia-smi` for "
                "what else uses it"
            ) from error
        return process

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
            gpu_uuid=self._uuid,
            visit=self._visit,
            clock_start_mhz=before.sm_clock_mhz,
            clock_end_mhz=after.sm_clock_mhz,
            temperature_c=before.temperature_c,
        )

    def compare(self, subjects: list[Subject]) -> Comparison:
        """Times of several subjects, interleaved."""
        self._prepare()
        with self._lane.held():
            timed = self._timed_sets(self._true.get(own=2, normal=1))
            before = self._gauges.read()
            comparer = Comparer(self._problem, timed, self._scratch)
            batches, failed = comparer.run(subjects, self.open_process)
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

    def _timed_sets(self, true: list[InputSet]) -> TimedSets:
        """Two sets of the problem's own distribution where they prove something, else what does."""
        own = [inputs for inputs in true if inputs.distribution == "own"]
        chosen = (own if len(own) >= 2 else true)[:2]
        names = [f"{Stage.TRUE_SHAPES.value} {inputs.label}" for inputs in chosen]
        flush = flush_ms(flush_bytes(self._l2_bytes), self._gpu)
        return TimedSets(self._true, chosen, names, flush)

    def close(self) -> None:
        """Give the GPU's memory back; the fork servers must have ended."""
        with self._lane.held():
            for sets in (self._smoke, self._true):
                if sets is not None:
                    sets.close()

    def profile(self, subject: Subject) -> Profile:
        """Nsight Compute's profile; the compiler's, with a note, where there can be none.

        Raises KernelError where the kernel can be profiled in neither way.
        """
        source = source_of(subject)
        key = source_key(source)
        if key in self._profiles:
            return self._profiles[key]
        note = self._no_ncu
        if note is None:
            try:
                profile = self._profile_with_ncu(source)
            except ProfilingError as error:
                note = str(error)
                if isinstance(error, NcuMissing | NcuPermission | NcuTooOld):
                    self._no_ncu = note  # it will not get better
        if note is not None:
            profile = self._compiler_profile(source).model_copy(update={"note": note})
        with self._lock:
            self._profiles[key] = profile
        return profile

    def _profile_with_ncu(self, source: str) -> Profile:
        path = write_source(self._scratch, source)
        with self._lane.held():
            return profile_on_gpu(self._problem, path, source, self._device, self._scratch)

    def _compiler_profile(self, source: str) -> Profile:
        key = source_key(source)
        if key not in self._compiled:
            log = Log()
            try:
                self._compile_ahead(source, write_source(self._scratch, source), log)
            except Rejected as rejection:
                raise KernelError(f"cannot be profiled: {rejection.reason}") from rejection
        if key not in self._compiled:
            raise KernelError("cannot be profiled: " + "; ".join(log.not_checked))
        return self._compiled[key]

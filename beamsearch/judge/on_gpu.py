"""The judge where there is a GPU: verified and timed on it, one candidate at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from beamsearch.errors import KernelError, ProblemError
from beamsearch.gpu.usage import Usage
from beamsearch.judge.capture.ahead import Captured, Form
from beamsearch.judge.gpu_session import GpuSession
from beamsearch.judge.nvidia_tools.profiling_run import Profilers
from beamsearch.judge.nvidia_tools.sanitizer import check_memory
from beamsearch.judge.rejection import (
    FIRST_CALL_S,
    GPU_CALL_S,
    NOT_IN_A_RUN,
    Log,
    Rejected,
    check_entry,
    unseen,
)
from beamsearch.judge.runner.client import Replay
from beamsearch.judge.sandbox.processes import ForkServers
from beamsearch.judge.sources import source_key, source_of, write_source, write_sources
from beamsearch.judge.timing.sweep import Sweeper
from beamsearch.judge.verification.input_set import ORDER
from beamsearch.judge.verification.on_gpu import OtherShapes
from beamsearch.judge.verification.python_call import tell_host_time
from beamsearch.judge.verification.robustness import (
    check_determinism,
    tell_layouts,
)
from beamsearch.judge.verification.stages import run_sets
from beamsearch.problem.problem import Problem
from beamsearch.problem.shrink import shrink
from beamsearch.records.job import Comparison, Judgement, Subject, Sweep
from beamsearch.records.measurement import Measurement
from beamsearch.records.verdict import Outcome, Stage
from kernel_profiling.errors import NcuUnusable, ProfilingError
from kernel_profiling.profile import Profile

if TYPE_CHECKING:
    from kernel_profiling.gpus import Gpu

TRUE_SETS = 5
"""Input sets at the true shapes, each from a seed of its own: `ALWAYS_DRAWN` that every candidate
meets, and others that follow from its source. A thorough judgement takes one of each."""


class MeasuringJudge(GpuSession):
    """Judges, times and profiles kernels on one GPU; thread-safe."""

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
        strict_nan: bool = False,
        usage: Usage | None = None,
    ) -> None:
        super().__init__(
            problem, gpu, device=device, servers=servers, scratch=scratch, seed=seed, usage=usage
        )
        self._strict_nan = strict_nan
        hold = partial(self._lane.held, work="profiling")
        self._profilers = Profilers(problem, device, scratch, hold)
        self._profiles: dict[str, Profile] = {}
        self._no_ncu: str | None = None if use_ncu else "Nsight Compute was not asked for"
        self._lock = threading.Lock()

    def close(self) -> None:
        self._profilers.close()
        super().close()

    def judge(
        self,
        subject: Subject,
        *,
        seen: Mapping[str, str] | None = None,
        thorough: bool = False,
        sanitize: bool = False,
    ) -> Judgement:
        """Verdict, and the measured time where it is correct. `seen` as in `JudgeJob`."""
        source = source_of(subject)
        log = Log()
        try:
            captured, path = self._captured(source, log)
            captured.tell(log)
            unseen(seen or {}, log)
            with self._lane.held(work="judging"), self._settling():
                form = self._form(source, captured.forms)
                measurement = self._on_gpu(source, path, captured, form, log, thorough)
                if sanitize:
                    self._check_memory(form, captured, log)
        except Rejected as rejection:
            return Judgement(verdict=log.rejected(rejection))
        return Judgement(verdict=log.correct(), measurement=measurement)

    def prepare(self, subjects: Sequence[Subject]) -> None:
        """Begin to compile kernels that will be judged, and profilers. Returns at once."""
        for subject in subjects:
            source = source_of(subject)
            with suppress(Rejected):  # its judgement says so
                check_entry(source, Log())
                self._captures.begin(write_source(self._scratch, source), source_key(source))
        if self._no_ncu is None:
            with suppress(ProfilingError):  # the profile says so
                self._profilers.stand_by()

    def sweep(self, subjects: Sequence[Subject]) -> Sweep:
        """Times of forms of one kernel, by successive halving: captured in one process, compiled
        side by side, and replayed."""
        import torch

        forms, failed = self._forms(subjects)
        with self._lane.held(work="tuning"), self._settling():
            timed = self._visit.timed_inputs(self._true, self._true_sets())
            try:
                sweeper = Sweeper(forms, timed, self._running, self._mend)
                found = sweeper.run() if forms else Sweep(times_ms={})
            except torch.OutOfMemoryError as error:
                reason = f"leaves no GPU memory to check results with: {error}".splitlines()[0]
                return Sweep(times_ms={}, failed={s.name: reason for s in subjects})
            finally:
                timed.restore()
        return Sweep(times_ms=found.times_ms, failed=failed | found.failed)

    def _forms(self, subjects: Sequence[Subject]) -> tuple[dict[str, Form], dict[str, str]]:
        """Forms that compile; equal code goes on once, the earliest of it."""
        sources, failed = {}, {}
        for subject in subjects:
            try:
                check_entry(source_of(subject), Log())
                sources[subject.name] = source_of(subject)
            except Rejected as rejection:
                failed[subject.name] = rejection.reason
        key = source_key("\f".join(sources.values()))
        paths = write_sources(self._scratch, key, sources)
        found, more = self._captures.sweep(paths, key)
        codes: dict[str, str] = {}
        forms: dict[str, Form] = {}
        for name in [name for name in paths if name in found]:
            code = found[name].compiled.profile.fingerprint or name
            if code in codes:
                failed[name] = f"compiles to the same code as {codes[code]}"
            else:
                codes[code], forms[name] = name, found[name]
        return forms, failed | more

    def _on_gpu(
        self, source: str, path: str, captured: Captured, form: Form, log: Log, thorough: bool
    ) -> Measurement:
        """Every stage on the GPU. Needs the lane. Raises Rejected."""
        import torch

        true = self._true_sets(source_key(source), len(ORDER) if thorough else TRUE_SETS)
        timed = self._visit.timed_inputs(self._true, true)
        try:
            nan = thorough or self._strict_nan
            OtherShapes(self._shapes, self._loaded, log, nan=nan, strict=self._strict_nan).run(
                captured
            )
            with self._loaded("candidate", form) as replay:
                run_sets(replay, self._true, true, Stage.TRUE_SHAPES, log, GPU_CALL_S, FIRST_CALL_S)
                check_determinism(replay, self._true, true[0], log, GPU_CALL_S)
                with self._usage.holding("timing"):
                    measured = self._visit.measure(replay, timed, log)
                    measurement = measured.model_copy(update={"configs": dict(form.pins)})
            if thorough:
                host_us = self._call_python(source, path, form, log)
                tell_host_time(host_us, measurement.time_ms, log)
                measurement = measurement.model_copy(update={"host_us": host_us})
                self._tell_layouts(path, source_key(source), form, log)
            else:
                log.not_checked.append(NOT_IN_A_RUN)
        except torch.OutOfMemoryError as error:
            reason = "takes so much GPU memory that none is left to check its results with"
            raise Rejected(Outcome.CRASHED, Stage.TRUE_SHAPES, reason) from error
        finally:
            timed.restore()
        return measurement

    def _tell_layouts(self, path: str, key: str, form: Form, log: Log) -> None:
        """Layouts that are only told, at small shapes; nothing for a problem that has none."""

        @contextmanager
        def opened(arguments: Mapping[str, Any]) -> Iterator[Replay]:
            there = self._captures.at(path, key, arguments, form.pins)
            with self._loaded("another layout", there) as replay:
                yield replay

        with suppress(ProblemError):
            tell_layouts(opened, self._shapes.of(shrink(self._problem)), log, GPU_CALL_S)

    def _check_memory(self, form: Form, captured: Captured, log: Log) -> None:
        """compute-sanitizer, at shrunk shapes where the kernel takes them and at the true ones."""
        small = [
            (item.label, item.problem, item.form)
            for item in captured.elsewhere[:1]
            if isinstance(item.form, Form)
        ]
        calls = [*small, ("the true shapes", self._problem, form)]
        check_memory(calls, self._device, self._scratch, log)

    def compare(self, subjects: list[Subject]) -> Comparison:
        """Times of several subjects, interleaved. Raises ProblemError where they and the oracle do
        not fit on the GPU together."""
        import torch

        forms: dict[str, Sequence[Form]] = {}
        failed: dict[str, str] = {}
        for subject in subjects:
            if subject.kind == "kernel":
                try:
                    captured, _ = self._captured(source_of(subject), Log())
                    captured.tell(Log())
                    forms[subject.name] = captured.forms
                except Rejected as rejection:
                    failed[subject.name] = rejection.reason
        left = [subject for subject in subjects if subject.name not in failed]
        with self._lane.held(work="comparing"), self._settling():
            timed = self._visit.timed_inputs(self._true, self._true_sets())
            try:
                chosen = self._choose(left, forms, failed)
                left = [subject for subject in left if subject.name not in failed]
                found = self._visit.compare(left, chosen, timed, self._open_runner)
            except torch.OutOfMemoryError as error:
                raise ProblemError(
                    f"{self._problem.name} does not fit on this GPU beside {len(subjects)} "
                    f"subjects; compare fewer at once: {str(error).splitlines()[0]}"
                ) from error
            finally:
                timed.restore()
            found = found.model_copy(update={"failed": failed | found.failed})
            return self._with_host_times(found, subjects, chosen)

    def _with_host_times(
        self, found: Comparison, subjects: Sequence[Subject], chosen: Mapping[str, Form]
    ) -> Comparison:
        """The kernels' own Python called too: one that is wrong there has no time."""
        times, failed = dict(found.measurements), dict(found.failed)
        for subject in subjects:
            if subject.name not in chosen or subject.name not in times:
                continue
            source = source_of(subject)
            path = write_source(self._scratch, source)
            try:
                host_us = self._call_python(source, path, chosen[subject.name], Log())
                told = {"host_us": host_us}
                times[subject.name] = times[subject.name].model_copy(update=told)
            except Rejected as rejection:
                failed[subject.name] = rejection.reason
                del times[subject.name]
        return found.model_copy(update={"measurements": times, "failed": failed})

    def _choose(
        self,
        subjects: Sequence[Subject],
        forms: Mapping[str, Sequence[Form]],
        failed: dict[str, str],
    ) -> dict[str, Form]:
        """The kernels' forms by name; one that has none goes to `failed`."""
        chosen: dict[str, Form] = {}
        for subject in subjects:
            if subject.name in forms:
                try:
                    chosen[subject.name] = self._form(source_of(subject), forms[subject.name])
                except Rejected as rejection:
                    failed[subject.name] = rejection.reason
        return chosen

    def profile(self, subject: Subject) -> Profile:
        """Nsight Compute's profile; the compiler's, with a note, where there can be none.

        Raises KernelError where the kernel cannot be captured, or never ends.
        """
        source = source_of(subject)
        key = source_key(source)
        if key in self._profiles:
            return self._profiles[key]
        try:
            captured, path = self._captured(source, Log())
            captured.tell(Log())
            if key not in self._chosen:
                with self._lane.held(work="profiling"):
                    self._form(source, captured.forms)
        except Rejected as rejection:
            raise KernelError(f"cannot be profiled: {rejection.reason}") from rejection
        form = self._chosen[key]
        note = self._no_ncu
        if note is None:
            try:
                with self._usage.waiting("profiler"):
                    profile = self._profilers.profile(path, form)
            except ProfilingError as error:
                note = str(error)
                if isinstance(error, NcuUnusable):
                    self._no_ncu = note  # it will not get better
        if note is not None:
            profile = form.compiled.profile
            notes = [text for text in (note, profile.note) if text]
            profile = profile.model_copy(update={"note": "; ".join(notes)})
        with self._lock:
            self._profiles[key] = profile
        return profile

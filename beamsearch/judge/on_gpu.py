"""The judge where there is a GPU: verified and timed on it, one candidate at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from beamsearch.errors import KernelError, ProblemError
from beamsearch.gpu.lane import Lane
from beamsearch.gpu.usage import Usage
from beamsearch.judge.capture.ahead import Captured, Captures, Form
from beamsearch.judge.nvidia_tools.profiling_run import Profilers
from beamsearch.judge.nvidia_tools.sanitizer import check_memory
from beamsearch.judge.runner.client import Replay, RunnerProcess
from beamsearch.judge.sandbox.memory import SharedMemory
from beamsearch.judge.sandbox.processes import ForkServers
from beamsearch.judge.sources import source_key, source_of, write_source, write_sources
from beamsearch.judge.timing.measure import Visit
from beamsearch.judge.timing.sweep import Sweeper
from beamsearch.judge.timing.timing import prepare, time_calls
from beamsearch.judge.verification.decide import ShapeSets
from beamsearch.judge.verification.inputs import (
    ALWAYS_DRAWN,
    ORDER,
    InputSet,
    InputSets,
    meta_arguments,
    order_for,
)
from beamsearch.judge.verification.on_gpu import Elsewhere, shapes_for
from beamsearch.judge.verification.python_call import call_python, tell_host_time
from beamsearch.judge.verification.robustness import (
    check_determinism,
    tell_layouts,
)
from beamsearch.judge.verification.stages import (
    FIRST_CALL_S,
    GPU_CALL_S,
    NOT_IN_A_RUN,
    Log,
    Rejected,
    check_entry,
    guarded,
    run_sets,
    unseen,
)
from beamsearch.problem.problem import Problem, shrink
from beamsearch.records.job import Comparison, Judgement, Subject, Sweep
from beamsearch.records.measurement import Measurement
from beamsearch.records.verdict import Outcome, Stage
from kernel_profiling.errors import NcuMissing, NcuPermission, NcuTooOld, ProfilingError
from kernel_profiling.profile import Profile

if TYPE_CHECKING:
    from kernel_profiling.gpus import Gpu

TRUE_SETS = 5
"""Input sets at the true shapes, each from a seed of its own: `ALWAYS_DRAWN` that every candidate
meets, and others that follow from its source. A thorough judgement takes one of each."""
CLOSE_S = 5.0
"""Seconds to wait for the lane at the end."""
TUNING_CALLS = 5
"""Timed calls by which an autotuned kernel's configuration is chosen."""


class MeasuringJudge:
    """Judges, times and profiles kernels on one GPU; thread-safe.

    The judge's process holds reference, oracle and input memory on the same GPU; the runner maps
    the inputs. Raises ProblemError where the problem does not fit on the GPU.
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
        strict_nan: bool = False,
        usage: Usage | None = None,
    ) -> None:
        import torch

        torch.cuda.set_device(device)
        self._visit = Visit(problem, gpu, device)
        self.device_name = self._visit.device_name
        self.gpu_uuid = self._visit.gpu_uuid
        self._problem = problem
        self._gpu = gpu
        self._device = device
        self._servers = servers
        self._scratch = scratch
        self._seed = seed
        self._strict_nan = strict_nan
        self._usage = usage or Usage()
        self._lane = Lane(self._visit.gpu_uuid, usage=self._usage)
        memory = SharedMemory(f"cuda:{device}")
        self._true = InputSets(problem, f"cuda:{device}", memory, seed)
        self._shapes = ShapeSets(problem, seed, memory)
        shapes = partial(shapes_for, self._shapes, problem)
        self._captures = Captures(servers, gpu, meta_arguments(problem), self._usage, seed, shapes)
        self._runner: RunnerProcess | None = None
        hold = partial(self._lane.held, work="profiling")
        self._profilers = Profilers(problem, device, scratch, hold)
        self._profiles: dict[str, Profile] = {}
        self._chosen: dict[str, Form] = {}
        """Source -> the form that was judged."""
        self._host_us: dict[str, float] = {}
        self._no_ncu: str | None = None if use_ncu else "Nsight Compute was not asked for"
        self._lock = threading.Lock()

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

    def _captured(self, source: str, log: Log) -> tuple[Captured, str]:
        """A source's plans, and the path of its file. Raises Rejected."""
        check_entry(source, log)
        path = write_source(self._scratch, source)
        return self._captures.result(path, source_key(source)), path

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

    def _running(self) -> RunnerProcess:
        """The runner, started anew where a fault took it. Needs the lane."""
        if self._runner is None or not self._runner.alive:
            self._runner = self._open_runner("candidates")
        return self._runner

    def _open_runner(self, name: str, env: dict[str, str] | None = None) -> RunnerProcess:
        log = self._scratch / f"runner-{name}.log"
        return RunnerProcess(self._device, self._visit.l2_bytes, log, env)

    @contextmanager
    def _settling(self) -> Iterator[None]:
        """Memory as it was for the next candidate: one may have written anywhere."""
        try:
            yield
        finally:
            self._mend()

    def _form(self, source: str, forms: Sequence[Form]) -> Form:
        """The one form of a kernel, or of an autotuned one's the fastest that is right on new
        values. Needs the lane. Raises Rejected where none is."""
        key = source_key(source)
        if key not in self._chosen:
            self._chosen[key] = forms[0] if len(forms) == 1 else self._fastest(forms)
        return self._chosen[key]

    def _fastest(self, forms: Sequence[Form]) -> Form:
        times: list[tuple[float, int]] = []
        rejection: Rejected | None = None
        timed = self._visit.timed_inputs(self._true, self._true_sets())
        try:
            for number, form in enumerate(forms):
                try:
                    with self._loaded(f"form {number}", form) as replay:
                        prepare(replay, timed, FIRST_CALL_S)
                        samples = time_calls(replay, timed, TUNING_CALLS, 0)
                        times.append((min(sample.ms for sample in samples), number))
                except Rejected as reason:
                    rejection = rejection or reason
                    self._mend()
        finally:
            timed.restore()
        if not times:
            assert rejection is not None
            raise rejection
        return forms[min(times)[1]]

    @contextmanager
    def _loaded(self, name: str, form: Form) -> Iterator[Replay]:
        """A form in the runner. Raises Rejected."""
        runner = self._running()
        guarded(
            Stage.COMPILE,
            "loading",
            lambda: runner.load(name, form.plan, form.compiled, FIRST_CALL_S),
        )
        try:
            yield Replay(runner, name, form.plan.touched)
        finally:
            runner.drop(name)

    def _on_gpu(
        self, source: str, path: str, captured: Captured, form: Form, log: Log, thorough: bool
    ) -> Measurement:
        """Every stage on the GPU. Needs the lane. Raises Rejected."""
        import torch

        true = self._true_sets(source_key(source), len(ORDER) if thorough else TRUE_SETS)
        timed = self._visit.timed_inputs(self._true, true)
        try:
            nan = thorough or self._strict_nan
            Elsewhere(self._shapes, self._loaded, log, nan=nan, strict=self._strict_nan).run(
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

    def _call_python(self, source: str, path: str, form: Form, log: Log) -> float:
        """What a call of the source takes on the host, in microseconds; once a source. Needs the
        lane. Raises Rejected."""
        key = source_key(source)
        if key not in self._host_us:
            target = self._device, self._gpu.model_dump(mode="json")
            on = self._true, self._true_sets()[0]
            self._host_us[key] = call_python(self._servers, path, key, form, target, on, log)
        return self._host_us[key]

    def _true_sets(self, key: str = "", count: int = ALWAYS_DRAWN) -> list[InputSet]:
        """Those a candidate of this key is run on; the first of them are everybody's. Raises
        ProblemError where they do not fit on the GPU."""
        import torch

        try:
            return self._true.draw(count, order_for(key, self._seed))
        except torch.OutOfMemoryError as error:
            raise ProblemError(
                f"{self._problem.name} does not fit on this GPU with its oracle in float32: "
                f"{str(error).splitlines()[0]}"
            ) from error

    def _mend(self) -> None:
        """After each candidate, a correct one too: it may have written anywhere."""
        self._true.mend()
        self._shapes.mend()

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
            if item.form is not None
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

    def close(self) -> None:
        """Give the GPU's memory back; the fork servers must have ended.

        Where somebody keeps the lane (a worker that was given up, within a profiler), the memory
        goes back when this process ends.
        """
        self._captures.close()
        self._profilers.close()
        with self._lane.held(CLOSE_S) as held:
            if not held:
                return
            if self._runner is not None:
                self._runner.end()
            self._true.close()
            self._shapes.close()

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
                if isinstance(error, NcuMissing | NcuPermission | NcuTooOld):
                    self._no_ncu = note  # it will not get better
        if note is not None:
            profile = form.compiled.profile
            notes = [text for text in (note, profile.note) if text]
            profile = profile.model_copy(update={"note": "; ".join(notes)})
        with self._lock:
            self._profiles[key] = profile
        return profile

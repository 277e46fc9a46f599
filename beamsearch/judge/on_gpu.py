"""The judge where there is a GPU: kernels are verified and timed on it, one at a time."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any

import torch

from beamsearch.errors import BeamsearchError, KernelError, ShortOfMemory
from beamsearch.gpu.lane import Lane
from beamsearch.gpu.usage import Usage, Work
from beamsearch.judge.arguments import ALWAYS_DRAWN, Layout, meta_arguments, order_for
from beamsearch.judge.capture.ahead import Captures, Means
from beamsearch.judge.capture.forms import Captured, Form, configurations
from beamsearch.judge.nvidia_tools.profilers import Profilers
from beamsearch.judge.nvidia_tools.sanitizer import MemoryCheck
from beamsearch.judge.rejection import (
    FIRST_CALL_S,
    GPU_CALL_S,
    NOT_IN_A_RUN,
    Log,
    Rejected,
    check_entry,
    guarded,
    unseen,
)
from beamsearch.judge.runner.client import Replay, RunnerProcess, Runners
from beamsearch.judge.sandbox.memory import SharedMemory
from beamsearch.judge.sandbox.processes import ForkServers
from beamsearch.judge.sources import source_key, source_of, write_source
from beamsearch.judge.timing.measure import Comparer, Visit
from beamsearch.judge.timing.sweep import Sweeper, tuned
from beamsearch.judge.verification.decide import check_elsewhere, shapes_for
from beamsearch.judge.verification.inputs import InputSet, InputSets
from beamsearch.judge.verification.own_python import (
    Calls,
    OwnPython,
    tell_host_time,
    with_host_times,
)
from beamsearch.judge.verification.robustness import check_determinism, laid_out, tell_layouts
from beamsearch.judge.verification.stages import run_sets
from beamsearch.problem.input_values import DISTRIBUTIONS
from beamsearch.problem.instance import fitting
from beamsearch.problem.memory import check_fits, needed
from beamsearch.problem.problem import Problem
from beamsearch.problem.shrink import shrink
from beamsearch.records.job import CompareJob, Comparison, Judgement, Subject, Sweep
from beamsearch.records.measurement import Measurement
from beamsearch.records.verdict import Outcome, Stage
from kernel_profiling.errors import NcuUnusable, ProfilingError
from kernel_profiling.gpus import Gpu
from kernel_profiling.profile import Profile

TAKES_ALL = "takes so much GPU memory that none is left to check its results with"
CLOSE_S = 5.0
"""Seconds to wait for the lane at the end."""
TRUE_SETS = 5
"""Input sets at the true shapes, each from a seed of its own: `ALWAYS_DRAWN` that every candidate
meets, and others that follow from its source. A thorough judgement takes one of each."""


class MeasuringJudge:
    """Judges, times and profiles kernels on one GPU; thread-safe.

    This process holds reference, oracle and input memory on the same GPU; the runner maps the
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
        usage: Usage,
        use_ncu: bool,
        strict_nan: bool,
        means: Means,
    ) -> None:
        torch.cuda.set_device(device)
        self._visit = Visit(problem, gpu, device)
        self._room = self._visit.room
        check_fits(problem, self._room.wait_for(needed(problem).total))
        self.device_name, self.gpu_uuid = self._visit.device_name, self._visit.gpu_uuid
        self.visit = self._visit.name
        self._problem = problem
        self._too_large = f"{problem.name} does not fit on this GPU with its oracle in float32"
        self._gpu = gpu
        self._device = device
        self._scratch = scratch
        self._seed = seed
        self._usage = usage
        self._strict_nan = strict_nan
        self._lane = Lane(self.gpu_uuid, usage=usage)
        self._true = InputSets(problem, SharedMemory(f"cuda:{device}"), seed)
        shapes = partial(shapes_for, problem)
        meta = meta_arguments(problem)
        self._captures = Captures(servers, gpu, meta, usage, seed, shapes, means=means)
        hold = partial(self._lane.held, work="profiling")
        self._profilers = Profilers(problem, device, scratch, hold)
        self._no_ncu: str | None = None if use_ncu else "Nsight Compute was not asked for"
        self._runners = Runners(device, self._visit.l2_bytes, scratch, means.cores)
        self._candidates: RunnerProcess | None = None
        self._python = OwnPython(servers, gpu, device, scratch)
        self._sets_begun = False
        self._closed = Event()
        self._chosen: dict[str, Form] = {}
        """Source -> the form that was judged; as the keys of the next one."""
        self._tuned: dict[str, dict[int, float]] = {}
        """Source of an autotuned kernel -> milliseconds of its forms, by number."""
        self._profiles: dict[tuple[str, bool], Profile] = {}
        """Source and whether it was profiled in full -> its profile."""

    def judge(
        self, subject: Subject, *, seen: Mapping[str, str], thorough: bool, sanitize: bool
    ) -> Judgement:
        """Verdict, and the measured time where it is correct. Options as in `JudgeJob`. A kernel
        that finds too little memory while others have it is judged again."""
        judged = partial(self._judged, source_of(subject), seen, thorough, sanitize)
        judgement, was_short = judged()
        if was_short and self.make_room():
            judgement, _ = judged()
        return judgement

    def _judged(
        self, source: str, seen: Mapping[str, str], thorough: bool, sanitize: bool
    ) -> tuple[Judgement, bool]:
        """The same, and whether it was the GPU's memory that was missing."""
        log, on_gpu = Log(), False
        try:
            captured, path = self._captures.captured(source, self._scratch, log)
            unseen(seen, log)
            with (
                self._python.opened([source] * thorough) as call,
                closing(MemoryCheck(self._problem, self._device, self._scratch)) as memory,
            ):
                # What needs no lane is there before it.
                if sanitize and (known := self._known(source, captured.forms)):
                    memory.begin(captured, known)
                at = partial(self._captures.at, path, pins=captured.forms[0].pins)
                more = (call, laid_out(self._problem, at)) if thorough else None
                with self._holding("judging"):
                    on_gpu = True
                    form = self._form(source, captured.forms)
                    measurement = self._measured(source, captured, form, log, more)
                    if sanitize:
                        memory.begin(captured, form)
                        memory.finish(log)
        except Rejected as rejection:
            return Judgement(verdict=log.rejected(rejection)), on_gpu and rejection.short_of_memory
        return Judgement(verdict=log.correct(), measurement=measurement), False

    def prepare(self, subjects: Sequence[Subject]) -> None:
        """Begin to compile kernels that will be judged, the input sets that the first one needs,
        and profilers; for baselines, to import torch.compile. Returns at once."""
        kernels = [subject for subject in subjects if subject.kind == "kernel"]
        if kernels and not self._sets_begun:
            self._sets_begun = True
            self._runners.open_soon()
            Thread(target=self._make_sets, args=(source_of(kernels[0]),), daemon=True).start()
        if len(kernels) < len(subjects):
            self._runners.start(compiles=True)
        self._captures.prepare(kernels, self._scratch)
        if self._no_ncu is None:
            with suppress(ProfilingError):  # the profile says so
                self._profilers.stand_by()

    def sweep(self, subjects: Sequence[Subject]) -> Sweep:
        """Times of forms of one kernel, by successive halving: captured in one process, compiled
        side by side, and replayed. Equal code is timed once."""
        sources, failed = {}, {}
        for subject in subjects:
            try:
                check_entry(source_of(subject), Log())
                sources[subject.name] = source_of(subject)
            except Rejected as rejection:
                failed[subject.name] = rejection.reason
        key = source_key("\f".join(sources.values()))
        paths = {
            name: write_source(self._scratch, source, key, f"form_{number}.py")
            for number, (name, source) in enumerate(sources.items())
        }
        forms, more = self._captures.sweep(paths, key)
        failed |= more
        with self._holding("tuning"):
            true = self._true_sets()
            try:
                with self._visit.timed_inputs(true) as timed:
                    compared = next((one for one in true if one.shared and one is not timed), timed)
                    sweep = Sweeper(forms, compared, timed, self._loaded).run()
            except torch.OutOfMemoryError as error:
                reason = f"leaves no GPU memory to check results with: {error}".splitlines()[0]
                return Sweep(times_ms={}, failed={s.name: reason for s in subjects})
        return Sweep(times_ms=sweep.times_ms, failed=failed | sweep.failed)

    def compare(self, job: CompareJob) -> Comparison:
        """Times of several subjects, interleaved. Raises ProblemError where not even one of them
        and the oracle fit on the GPU together."""
        subjects = job.subjects
        sources = {s.name: source_of(s) for s in subjects if s.kind == "kernel"}
        forms: dict[str, Sequence[Form]] = {}
        chosen: dict[str, Form] = {}
        failed: dict[str, str] = {}
        for name, source in sources.items():
            try:
                forms[name] = self._captures.captured(source, self._scratch, Log())[0].forms
            except Rejected as rejection:
                failed[name] = rejection.reason
        called = [] if job.own_python == "none" else [sources[name] for name in forms]
        for of_baselines in {subject.kind != "kernel" for subject in subjects}:
            self._runners.open_soon(compiles=of_baselines)
        with self._python.opened(called) as call, self._holding("comparing"):
            self._true_sets()
            if self._room.stays_crowded(self._true):  # subjects have results of their own
                self._room.give_back(self._true, self._candidates)
            with (
                fitting(f"{self._problem.name} does not fit here beside what is timed"),
                self._visit.timed_inputs(self._true_sets()) as timed,
            ):
                for name, some in forms.items():
                    try:
                        chosen[name] = self._form(sources[name], some)
                    except Rejected as rejection:
                        failed[name] = rejection.reason
                left = [subject for subject in subjects if subject.name not in failed]
                opened = self._runners.opened, self._runners.for_baselines
                found = Comparer(self._visit, timed, *opened).run(left, chosen, kernels=job.kernels)
            inputs = self._true_sets()[0]
            times, wrong = with_host_times(
                {name: found.measurements[name] for name in chosen if name in found.measurements},
                lambda name: call(sources[name], chosen[name], inputs, Log()),
                job.own_python,
            )
        measured = {n: m for n, m in found.measurements.items() if n not in chosen} | times
        return found.with_values(measurements=measured, failed=failed | found.failed | wrong)

    def profile(self, subject: Subject, *, full: bool) -> Profile:
        """Nsight Compute's profile; the compiler's, with a note, where there can be none. Raises
        KernelError where the kernel cannot be captured or compiled, or never ends."""
        source = source_of(subject)
        key = source_key(source)
        if (key, full) in self._profiles:
            return self._profiles[key, full]
        try:
            captured, path = self._captures.captured(source, self._scratch, Log())
            if key not in self._chosen:
                with self._holding("profiling"):
                    self._form(source, captured.forms)
            form = self._chosen[key]
            if self._no_ncu is not None:
                form = self._captures.described(form)
        except Rejected as rejection:
            raise KernelError(f"cannot be profiled: {rejection.reason}") from rejection
        note = self._no_ncu
        if note is None:
            try:
                with self._usage.waiting("profiler"):
                    profile = self._profilers.profile(path, form, full)
            except ProfilingError as error:
                note = str(error)
                if isinstance(error, NcuUnusable):
                    self._no_ncu = note  # it will not get better
        if note is not None:
            profile = form.compiled.profile
            profile = profile.with_values(note="; ".join(filter(None, (note, profile.note))))
        tried = configurations(captured.forms, self._tuned.get(key))
        self._profiles[key, full] = profile.with_values(configurations=tried)
        return self._profiles[key, full]

    def close(self) -> None:
        """Give the GPU's memory back; the fork servers must have ended.

        Where somebody keeps the lane (a worker that was given up, within a profiler), the memory
        goes back when this process ends.
        """
        self._closed.set()
        self._profilers.close()
        self._captures.close()
        self._runners.close()
        with self._lane.held(CLOSE_S) as held:
            if held:
                if self._candidates is not None:
                    self._candidates.end()
                self._runners.end_baselines()
                self._true.close()

    @contextmanager
    def _holding(self, work: Work, *, shared: bool = False) -> Iterator[None]:
        """The lane. Any candidate may write anywhere, and a lane that rests must not fill GPUs."""
        with self._lane.held(work=work, shared=shared):
            try:
                with fitting(self._too_large):
                    yield
            finally:
                with fitting(self._too_large):
                    self._true.mend()
                self._room.rest(self._true, self._candidates)

    def _make_sets(self, source: str) -> None:
        """The sets that a kernel is judged on. What goes wrong is told where they are needed."""
        with suppress(BeamsearchError, RuntimeError):
            self._true.get_ready()
            with self._holding("preparing", shared=True):
                for count in range(1, TRUE_SETS + 1):
                    if not self._closed.is_set():
                        self._true_sets(source_key(source), count)

    def make_room(self) -> bool:
        """Give back what can be made again, and have others do so, where memory is short though
        nobody works; whether it was."""
        with self._lane.held(work="preparing"):
            if not self._room.is_half_full:
                return False
            self._room.give_back(self._true, self._candidates)
        self._room.wait()
        return True

    @contextmanager
    def _loaded(self, name: str, form: Form | Rejected) -> Iterator[Replay]:
        """A form in a runner, a new one after a fault. Needs the lane. Raises Rejected."""
        if isinstance(form, Rejected):
            raise form
        if self._candidates is None or not self._candidates.alive:
            self._candidates = self._runners.opened()
        runner = self._candidates
        try:
            given = (name, form.plan, form.compiled, FIRST_CALL_S)
            yield guarded(Stage.COMPILE, "loading", runner.load, *given)
        finally:
            runner.drop(name)

    def _form(self, source: str, forms: Sequence[Form]) -> Form:
        """The one form of a kernel, or of an autotuned one's the fastest that is right on new
        values. Needs the lane. Raises Rejected where none is."""
        key = source_key(source)
        if key not in self._chosen:
            self._chosen[key] = self._known(source, forms) or self._fastest(key, forms)
        return self._chosen[key]

    def _known(self, source: str, forms: Sequence[Form]) -> Form | None:
        """The same, where it is to be told without the lane."""
        return self._chosen.get(source_key(source), forms[0] if len(forms) == 1 else None)

    def _fastest(self, key: str, forms: Sequence[Form]) -> Form:
        times = self._tuned[key] = self._captures.tuned(key, lambda: self._times_of(forms))
        return forms[min(times, key=times.__getitem__)]

    def _times_of(self, forms: Sequence[Form]) -> dict[int, float]:
        with self._visit.timed_inputs(self._true_sets()) as timed:
            return tuned(forms, timed, self._loaded)

    def _true_sets(self, key: str = "", count: int = ALWAYS_DRAWN) -> list[InputSet]:
        """Those a candidate of this key is run on; the first of them are everybody's. Raises
        ProblemError where they do not fit on the GPU."""
        with fitting(self._too_large):
            return self._true.draw(count, order_for(key, self._seed))

    def _measured(
        self,
        source: str,
        captured: Captured,
        form: Form,
        log: Log,
        more: tuple[Calls, Mapping[Layout, Form | Rejected]] | None,
    ) -> Measurement:
        """Every stage on the GPU. With `more`, thoroughly: what calls the kernel's own Python, and
        the kernel for inputs of other layouts. Needs the lane. Raises Rejected."""
        strict = self._strict_nan
        true = self._true_sets(source_key(source), len(DISTRIBUTIONS) if more else TRUE_SETS)
        with self._visit.timed_inputs(true) as timed:
            try:
                nan = more is not None or strict
                check_elsewhere(captured, self._true, self._loaded, log, nan=nan, strict=strict)
                with self._loaded("candidate", form) as replay:
                    run_sets(replay, true, Stage.TRUE_SHAPES, log, GPU_CALL_S, FIRST_CALL_S)
                    check_determinism(replay, true[0], log)
                    with self._usage.holding("timing"):
                        measurement = self._visit.measure(replay, timed, log)
                found: dict[str, Any] = {"configs": dict(form.pins)}
                if more:
                    call, layouts = more
                    found["host_us"] = call(source, form, true[0], log)
                    tell_host_time(found["host_us"], measurement.time_ms, log)
                    if layouts:
                        opened = partial(self._loaded, "another layout")
                        small = self._true.at(shrink(self._problem))
                        tell_layouts(lambda name: opened(layouts[name]), small, log, GPU_CALL_S)
                else:
                    log.not_checked.append(NOT_IN_A_RUN)
                return measurement.with_values(**found)
            except (torch.OutOfMemoryError, ShortOfMemory) as error:
                where = Outcome.CRASHED, Stage.TRUE_SHAPES
                raise Rejected(*where, TAKES_ALL, short_of_memory=True) from error

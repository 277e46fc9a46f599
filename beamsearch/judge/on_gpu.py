"""The judge where there is a GPU: verified and timed on it, one candidate at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from beamsearch.distributions import DISTRIBUTIONS
from beamsearch.errors import BeamsearchError, KernelError, ProblemError, Stopped
from beamsearch.executor.jobs import Comparison, Judgement, Subject, Sweep
from beamsearch.executor.lane import Lane
from beamsearch.executor.usage import Usage
from beamsearch.judge.ahead import Compilers
from beamsearch.judge.inputs import (
    ALWAYS_DRAWN,
    ORDER,
    InputSet,
    InputSets,
    meta_arguments,
    order_for,
)
from beamsearch.judge.measure import Visit
from beamsearch.judge.memory import SharedMemory
from beamsearch.judge.processes import (
    CandidateError,
    CandidateProcess,
    DeadlineMissed,
    ForkServers,
    ProcessDied,
    ServerLost,
)
from beamsearch.judge.profiling_run import Profilers
from beamsearch.judge.robustness import (
    alive,
    check_determinism,
    check_not_a_number,
    try_layouts,
    try_other_shapes,
)
from beamsearch.judge.sanitizer import check_memory
from beamsearch.judge.shapes import other_shapes
from beamsearch.judge.sources import source_key, source_of, write_source
from beamsearch.judge.sweep import compiled_forms
from beamsearch.judge.verify import (
    COMPILE_S,
    FIRST_CALL_S,
    GPU_CALL_S,
    NOT_IN_A_RUN,
    Log,
    Rejected,
    check_policy,
    load,
    run_sets,
    unseen,
)
from beamsearch.judge.walls import FILES, NETWORK, PROCESSES, USER
from beamsearch.problem import Problem, shrink
from beamsearch.records.measurement import Measurement
from beamsearch.records.verdict import Outcome, Reach, Stage
from profiling.errors import NcuMissing, NcuPermission, NcuTooOld, ProfilingError
from profiling.profile import Profile

if TYPE_CHECKING:
    from profiling.gpus import Gpu

TRUE_SETS = 5
"""Input sets at the true shapes, each from a seed of its own: `ALWAYS_DRAWN` that every candidate
meets, and others that follow from its source. A thorough judgement takes one of each."""
OPEN_S = 60.0
"""Seconds for a CUDA context, which takes under one."""
CLOSE_S = 5.0
"""Seconds to wait for the lane at the end."""


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
        self._memory = memory = SharedMemory(f"cuda:{device}")
        self._true = InputSets(problem, f"cuda:{device}", memory, seed)
        self._elsewhere: list[tuple[str, InputSets]] | None = None
        self._smoke: InputSets | None = None
        self._no_smoke = ""
        try:
            self._smoke = InputSets(shrink(problem), f"cuda:{device}", memory, seed)
        except ProblemError as error:
            self._no_smoke = f"shrunk shapes: {error}"
        shapes = [problem, self._smoke.problem] if self._smoke else [problem]
        arguments = [meta_arguments(shape) for shape in shapes]
        self._compilers = Compilers(servers, gpu, arguments, self._usage)
        self._ready = False
        hold = partial(self._lane.held, work="profiling")
        self._profilers = Profilers(problem, device, scratch, hold)
        self._profiles: dict[str, Profile] = {}
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
            check_policy(source, log)
            path = write_source(self._scratch, source)
            self._prepare()
            self._compilers.result(path, source_key(source)).tell(log)
            unseen(seen or {}, log)
            with self._lane.held(work="judging"):
                measurement = self._on_gpu(source, path, log, thorough)
                if sanitize:
                    self._check_memory(path, log)
        except Rejected as rejection:
            return Judgement(verdict=log.rejected(rejection))
        return Judgement(verdict=log.correct(), measurement=measurement)

    def prepare(self, subjects: Sequence[Subject]) -> None:
        """Begin to compile kernels that will be judged, and profilers. Returns at once."""
        self._prepare()
        for subject in subjects:
            source = source_of(subject)
            with suppress(Rejected):  # its judgement says so
                check_policy(source, Log())
                self._compilers.begin(write_source(self._scratch, source), source_key(source))
        if self._no_ncu is None:
            with suppress(ProfilingError):  # the profile says so
                self._profilers.stand_by()

    def sweep(self, subjects: Sequence[Subject]) -> Sweep:
        """Times of forms of one kernel, by successive halving: compiled side by side first, then
        called in one process."""
        import torch

        self._prepare()
        forms = compiled_forms(subjects, self._scratch, self._compilers)
        with self._lane.held(work="tuning"):
            true = self._true_sets()
            try:
                return self._visit.sweep(forms, self._true, true, self.open_process, self._mend)
            except torch.OutOfMemoryError as error:
                reason = f"leaves no GPU memory to check results with: {error}".splitlines()[0]
                return Sweep(times_ms={}, failed={s.name: reason for s in subjects})
            finally:
                self._visit.restore()
                self._mend()

    def _prepare(self) -> None:
        """Once, before the first candidate: which walls CUDA works behind, and in the compile cache
        what every kernel's launch needs."""
        if self._ready:  # or every job would wait for the GPU twice
            return
        with self._lock, self._lane.held():
            if self._ready:
                return
            self._true_sets()
            if reason := self._memory.same_user:
                for wall in (USER, PROCESSES):
                    self._servers.leave_out(wall, f"the GPU's memory is shared otherwise: {reason}")
            with self.open_process(trusted=True) as process:
                process.ask("prepare", COMPILE_S)
            self._choose_walls()
            self._visit.lists_kernels = self._lists_kernels()
            self._ready = True

    def _choose_walls(self) -> None:
        """Leave out as few walls as CUDA needs to start: none, each alone, two, in the end all.

        Raises what stops it where that does not help either.
        """
        names = [name for name in (FILES, NETWORK, PROCESSES, USER) if self._servers.builds(name)]
        trials = [chosen for count in (0, 1, 2) for chosen in combinations(names, count)]
        for left_out in [*trials, tuple(names)]:
            for wall in left_out:
                self._servers.leave_out(wall, "CUDA does not start behind it")
            try:
                self.open_process().end()
                return
            except BeamsearchError as error:
                for wall in left_out:
                    self._servers.build_again(wall)
                if isinstance(error, Stopped | ServerLost) or len(left_out) == len(names):
                    raise

    def _lists_kernels(self) -> bool:
        """Whether CUPTI works behind the walls, from a process with no candidate in it."""
        with self.open_process() as process:
            try:
                return "missing" not in process.ask("watch", OPEN_S, schedule=[])
            except (CandidateError, ProcessDied, DeadlineMissed):
                return False

    def walls(self) -> dict[str, str]:
        """Wall -> why candidates do without it here, "" where it stands."""
        self._prepare()
        return self._servers.walls()

    def _on_gpu(self, source: str, path: str, log: Log, thorough: bool) -> Measurement:
        """Every stage on the GPU, in one process unless a foreign shape ends it. Needs the lane."""
        import torch

        def opened() -> CandidateProcess:
            process = self.open_process(key=source_key(source))
            processes.append(process)
            load(process, path)
            return process

        # Before a candidate has any of the memory.
        true = self._true_sets(source_key(source), len(ORDER) if thorough else TRUE_SETS)
        processes: list[CandidateProcess] = []
        try:
            process, elsewhere = self._run_smoke(opened(), opened, log, thorough)
            run_sets(process, self._true, true, Stage.TRUE_SHAPES, log, GPU_CALL_S, FIRST_CALL_S)
            if elsewhere is not None:
                # What failed there may be the values, not the shape: all of them at the true ones.
                known = {inputs.label for inputs in true}
                every = self._true.draw(len(ORDER))
                more = [inputs for inputs in every if inputs.label not in known]
                run_sets(process, self._true, more, Stage.TRUE_SHAPES, log, GPU_CALL_S)
                log.specialised(Stage.OTHER_SHAPES, "shrunk shapes", elsewhere.reason)
            check_determinism(process, self._true, true[0], log, GPU_CALL_S)
            with self._usage.holding("timing"):
                measurement = self._visit.measure(process, source, self._true, true, log)
            if thorough:
                self._try_elsewhere(process, opened, log)
            else:
                log.not_checked.append(NOT_IN_A_RUN)
        except torch.OutOfMemoryError as error:
            reason = "takes so much GPU memory that none is left to check its results with"
            raise Rejected(Outcome.CRASHED, Stage.TRUE_SHAPES, reason) from error
        finally:
            for process in processes:
                process.end()
                log.output.append(process.output)
            self._visit.restore()
            self._mend()
        return measurement

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
        for sets in (self._smoke, self._true):
            if sets is not None:
                sets.mend()

    def _run_smoke(
        self,
        process: CandidateProcess,
        again: Callable[[], CandidateProcess],
        log: Log,
        thorough: bool,
    ) -> tuple[CandidateProcess, Rejected | None]:
        """Shrunk shapes first: the process to go on with, and what was not right there.

        A kernel that raises there, cannot be bound, crashes or computes something else may be made
        for the true shapes alone, and those decide. One that never ends is refused.
        """
        if self._smoke is None:
            log.not_checked.append(self._no_smoke)
            return process, None
        try:
            sets = self._smoke.draw(len(DISTRIBUTIONS), DISTRIBUTIONS)
        except ProblemError as error:
            log.not_checked.append(f"shrunk shapes: {error}")
            return process, None
        try:
            run_sets(process, self._smoke, sets, Stage.SMOKE, log, GPU_CALL_S, FIRST_CALL_S)
        except ProblemError as error:
            log.not_checked.append(f"shrunk shapes: {error}")
            return process, None
        except Rejected as rejection:
            if rejection.outcome is Outcome.TIMEOUT:
                raise
            reason = f"the true shapes decide: {rejection.reason}"
            log.reported(Stage.SMOKE, "shrunk shapes", False, reason)
            process = alive(process, rejection, again)
            self._mend()
            return process, rejection
        log.reach = Reach.GENERAL
        if thorough or self._strict_nan:
            strict = self._strict_nan
            check_not_a_number(process, self._smoke, log, GPU_CALL_S, strict=strict)
        return process, None

    def _try_elsewhere(
        self, process: CandidateProcess, again: Callable[[], CandidateProcess], log: Log
    ) -> None:
        """Shapes and layouts that are only told."""
        if self._elsewhere is None:
            self._elsewhere = [
                (label, InputSets(problem, self._true.device, self._memory, self._seed))
                for label, problem in other_shapes(self._problem)
            ]
        process = try_other_shapes(process, again, self._elsewhere, log, GPU_CALL_S)
        if self._smoke is not None:
            try_layouts(process, again, self._smoke, log, GPU_CALL_S)

    def _check_memory(self, path: str, log: Log) -> None:
        """compute-sanitizer, at shrunk shapes where the kernel takes them and at the true ones."""
        problems = [("the true shapes", self._problem)]
        if self._smoke is not None and log.reach is Reach.GENERAL:
            problems.insert(0, ("shrunk shapes", self._smoke.problem))
        check_memory(problems, path, self._device, self._scratch, log)

    def open_process(self, **options: Any) -> CandidateProcess:
        """A process with a CUDA context and no candidate in it yet. Needs the lane."""
        process = self._servers.fork("normal", limit_memory=False, **options)
        try:
            process.ask("open", OPEN_S, device=self._device, l2_bytes=self._visit.l2_bytes)
        except (CandidateError, ProcessDied, DeadlineMissed) as error:
            process.end()
            raise BeamsearchError(
                f"the GPU gives no context to a candidate's process: {error}; see `nvidia-smi` for "
                "what else uses it"
            ) from error
        return process

    def compare(self, subjects: list[Subject]) -> Comparison:
        """Times of several subjects, interleaved. Raises ProblemError where they and the oracle do
        not fit on the GPU together."""
        import torch

        self._prepare()
        with self._lane.held(work="comparing"):
            true = self._true_sets()
            try:
                return self._visit.compare(
                    subjects, self._true, true, self._scratch, self.open_process
                )
            except torch.OutOfMemoryError as error:
                raise ProblemError(
                    f"{self._problem.name} does not fit on this GPU beside {len(subjects)} "
                    f"subjects; compare fewer at once: {str(error).splitlines()[0]}"
                ) from error

    def close(self) -> None:
        """Give the GPU's memory back; the fork servers must have ended.

        Where somebody keeps the lane (a worker that was given up, within a profiler), the memory
        goes back when this process ends.
        """
        self._compilers.close()
        self._profilers.close()
        with self._lane.held(CLOSE_S) as held:
            if not held:
                return
            elsewhere = [sets for _, sets in self._elsewhere or []]
            for sets in (self._smoke, self._true, *elsewhere):
                if sets is not None:
                    sets.close()

    def profile(self, subject: Subject) -> Profile:
        """Nsight Compute's profile; the compiler's, with a note, where there can be none; one with
        no launches where a kernel that runs here does not compile without a GPU.

        Raises KernelError where the kernel cannot even be imported, or never ends.
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
            profile = self._compiler_profile(source)
            notes = [text for text in (note, profile.note) if text]
            profile = profile.model_copy(update={"note": "; ".join(notes)})
        with self._lock:
            self._profiles[key] = profile
        return profile

    def _profile_with_ncu(self, source: str) -> Profile:
        path = write_source(self._scratch, source)
        with self._usage.waiting("profiler"):
            return self._profilers.profile(path, source)

    def _compiler_profile(self, source: str) -> Profile:
        compiled = self._compilers.result(write_source(self._scratch, source), source_key(source))
        if compiled.rejection is not None:
            raise KernelError(f"cannot be profiled: {compiled.rejection.reason}")
        if compiled.profile is None:  # it may be correct, and a run goes on without a profile
            note = "; ".join(compiled.log.not_checked)
            return Profile(source="compiler", gpu=self._gpu.name, launches=[], note=note)
        return compiled.profile

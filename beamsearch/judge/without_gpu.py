"""The judge where there is no GPU: the interpreter on shrunk shapes, the compiler at true ones."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from math import isfinite, prod
from pathlib import Path

from beamsearch.errors import KernelError
from beamsearch.gpu.usage import Usage
from beamsearch.judge.arguments import meta_arguments
from beamsearch.judge.capture.ahead import Captures, Means
from beamsearch.judge.capture.forms import Captured, configurations
from beamsearch.judge.once import OncePerKey
from beamsearch.judge.rejection import (
    COMPILE_S,
    INTERPRET_S,
    NOT_IN_A_RUN,
    Log,
    Rejected,
    guarded,
    load,
    parsed,
    unseen,
)
from beamsearch.judge.sandbox.memory import SharedMemory
from beamsearch.judge.sandbox.processes import CandidateProcess, ForkServers
from beamsearch.judge.sources import source_key, source_of
from beamsearch.judge.verification.decide import Decision
from beamsearch.judge.verification.inputs import InputSets
from beamsearch.judge.verification.robustness import (
    check_not_a_number,
    check_two_alive,
    tell_layouts,
)
from beamsearch.judge.verification.true_shapes import check_trace
from beamsearch.problem.input_values import DISTRIBUTIONS
from beamsearch.problem.kernel import interpretation
from beamsearch.problem.least_work import least_work
from beamsearch.problem.problem import Problem
from beamsearch.problem.shrink import shrink
from beamsearch.records.job import Judgement, Subject, Sweep
from beamsearch.records.measurement import Measurement
from beamsearch.records.verdict import Outcome, Reach, Stage
from kernel_profiling.estimate.time_model import estimate
from kernel_profiling.estimate.traffic import AccessTrace
from kernel_profiling.gpus import Gpu
from kernel_profiling.profile import Profile

MODELLED_FORMS = 4
"""Of a sweep, the kernel as it is included: each takes a second or two, and a model that cannot
tell neighbours apart."""
WAVES = 4
"""A launch of at most so many programs a multiprocessor may give each several tiles."""
NOT_WITHOUT_GPU = [
    "results at the true shapes: there is no GPU here, so they were verified in Triton's "
    "interpreter on smaller shapes, where it launches what it launches at the true ones",
    "determinism and memory safety: the interpreter runs one program after another",
    "time: modelled, not measured",
]
NOT_SANITIZED = "compute-sanitizer: it needs a GPU"


class ModellingJudge:
    """Judges and profiles kernels for a GPU that is not here; thread-safe."""

    def __init__(
        self,
        problem: Problem,
        gpu: Gpu,
        servers: ForkServers,
        scratch: Path,
        seed: int,
        *,
        slots: int,
        strict_nan: bool,
        usage: Usage,
        means: Means,
    ) -> None:
        """`slots`: processes that verify candidates at once."""
        self._problem = problem
        self._gpu = gpu
        self._servers = servers
        self._scratch = scratch
        self._strict_nan = strict_nan
        self._usage = usage
        self._slots = threading.BoundedSemaphore(slots)
        self._spare = ThreadPoolExecutor(slots)
        self._arguments = meta_arguments(problem)
        self._captures = Captures(servers, gpu, self._arguments, usage, seed, means=means)
        self._sets = InputSets(problem, SharedMemory("cpu"), seed)
        self._profiles: dict[str, Profile] = {}
        """Source -> what a correct kernel's judgement found."""
        self._interpreted = OncePerKey()
        """What the interpreter showed of correct kernels, by their interpretation and whether the
        judgement was thorough: forms that differ in launch parameters are run once."""

    def judge(
        self, subject: Subject, *, seen: Mapping[str, str], thorough: bool, sanitize: bool
    ) -> Judgement:
        """Verdict, and the modelled time where it is correct. Options as in `JudgeJob`; no
        sanitizer runs without a GPU. Raises ProblemError."""
        source, log = source_of(subject), Log()
        log.not_checked += NOT_WITHOUT_GPU if thorough else [*NOT_WITHOUT_GPU, NOT_IN_A_RUN]
        log.not_checked += [NOT_SANITIZED] if sanitize else []
        try:
            captured, path = self._captured(source, log, seen)
            interpret = partial(self._interpret, path, captured, log, thorough)
            own, trace = self._interpreted.get((interpretation(source), thorough), interpret)
            log.add(own)
            profile = self._profiles[source_key(source)] = self._timed(captured, trace)
        except Rejected as rejection:
            return Judgement(verdict=log.rejected(rejection))
        measurement = None
        if profile.modelled_ms is not None:
            measurement = Measurement(
                source="modelled", time_ms=profile.modelled_ms, gpu=self._gpu.name
            )
        return Judgement(verdict=log.correct(), measurement=measurement)

    def prepare(self, subjects: Sequence[Subject]) -> None:
        """Begin to compile kernels that will be judged. Returns at once."""
        self._captures.prepare(subjects, self._scratch)

    def profile(self, subject: Subject, *, full: bool) -> Profile:
        """The compiler's profile with its modelled time, always in full; that of a judged kernel
        is cached.

        Raises KernelError where the kernel is found wrong.
        """
        source = source_of(subject)
        key = source_key(source)
        if key not in self._profiles:
            verdict = self.judge(subject, seen={}, thorough=False, sanitize=False).verdict
            if verdict.outcome is Outcome.UNPROVEN:
                self._profiles[key] = self._modelled(source, Log(), {})
            elif not verdict.correct:
                raise KernelError(f"{subject.name} cannot be profiled: {verdict.reason}")
        return self._profiles[key]

    def _modelled(self, source: str, log: Log, seen: Mapping[str, str]) -> Profile:
        """The profile of a kernel that nothing is verified of. Raises Rejected."""
        captured, path = self._captured(source, log, seen)
        with self._slots, self._usage.waiting("verification"):
            with self._running(path, captured, log) as process:
                trace = self._followed(process)
            return self._timed(captured, trace)

    def sweep(self, subjects: Sequence[Subject]) -> Sweep:
        """Modelled times of the first few forms of one kernel; nothing is verified."""
        times: dict[str, list[float]] = {}
        codes: dict[str, str] = {}
        failed = {subject.name: "not modelled" for subject in subjects[MODELLED_FORMS:]}
        for subject in subjects[:MODELLED_FORMS]:
            source, log = source_of(subject), Log()
            profile = self._profiles.get(source_key(source))
            try:
                profile = profile or self._modelled(source, log, codes)
            except Rejected as rejection:
                failed[subject.name] = rejection.reason
                continue
            if profile.fingerprint is not None:
                codes[profile.fingerprint[:16]] = subject.name
            if profile.modelled_ms is not None:
                times[subject.name] = [profile.modelled_ms]
        return Sweep(times_ms=times, failed=failed, modelled=True)

    def _captured(self, source: str, log: Log, seen: Mapping[str, str]) -> tuple[Captured, str]:
        """A kernel's plans, and the file that it was imported from. Raises Rejected."""
        found = self._captures.captured(source, self._scratch, log)
        unseen(seen, log)
        return found

    def _interpret(
        self, path: str, captured: Captured, log: Log, thorough: bool
    ) -> tuple[Log, AccessTrace]:
        """What the checks in the interpreter noted, and the accesses at the true shapes. Raises
        Rejected; what was noted until then goes to the log."""
        own = Log(reach=Reach.GENERAL, launched=log.launched)
        with self._slots, self._usage.waiting("verification"):
            try:
                return own, self._checked(path, captured, own, thorough)
            except Rejected:
                log.add(own)
                raise

    def _checked(self, path: str, captured: Captured, log: Log, thorough: bool) -> AccessTrace:
        """Every check in the interpreter, and the accesses at the true shapes. Raises Rejected."""
        decision, strict = Decision(self._sets, log), self._strict_nan
        sets = self._sets.at(shrink(self._problem))
        drawn = sets.draw(len(DISTRIBUTIONS))  # as many as its work allows are run
        programs = max(prod(launch.grid) for launch in captured.forms[0].plan.launches)
        with self._running(path, captured, log) as process:
            taken = decision.smoke(process, drawn)
            elsewhere = Log(reach=log.reach, rms_error=log.rms_error)

            def decide() -> None:
                opened = partial(self._opened, path, captured, elsewhere)
                decision.decide(opened, elsewhere, tiled=programs <= WAVES * self._gpu.sms)
                if thorough and not decision.given_up.is_set():
                    tell_layouts(lambda layout: opened(), sets, elsewhere, INTERPRET_S)

            with self._beside(decide, decision.given_up) as decided:
                if taken:
                    check_two_alive(process, drawn, log)
                if taken and (thorough or strict):
                    check_not_a_number(process, sets, log, INTERPRET_S, strict=strict)
                trace = self._followed(process)
                check_trace(trace, least_work(self._problem).least_bytes, log)
        try:
            decided()
        finally:
            log.add(elsewhere)
        return trace

    @contextmanager
    def _running(self, path: str, captured: Captured, log: Log) -> Iterator[CandidateProcess]:
        """As `_opened`, and ended; what it printed is noted. Raises Rejected."""
        with self._opened(path, captured, log) as process:
            try:
                yield process
            finally:
                process.end()
                log.output.append(process.output)

    @contextmanager
    def _beside(
        self, task: Callable[[], None], given_up: threading.Event
    ) -> Iterator[Callable[[], None]]:
        """Does a task while the body runs, where no other candidate needs the core. What it gives
        waits for the task, or does it, and raises what it raises. What the body raises comes first:
        then the task is given up."""
        if not self._slots.acquire(blocking=False):
            yield task
            return
        doing = self._spare.submit(task)
        doing.add_done_callback(lambda done: self._slots.release())
        try:
            yield doing.result
        except BaseException:
            given_up.set()
            raise
        finally:
            doing.exception()

    def _followed(self, process: CandidateProcess) -> AccessTrace:
        """The accesses at the true shapes. Raises Rejected."""
        what, given = "following its memory accesses", {"arguments": self._arguments}
        traced = guarded(Stage.COMPILE, what, process.ask, "trace", COMPILE_S, **given)
        return parsed(AccessTrace, traced.get("trace"), Stage.COMPILE)

    def _timed(self, captured: Captured, trace: AccessTrace) -> Profile:
        """The compiler's profile with its modelled time. Of an autotuned kernel's configurations
        none can be chosen by time here: it is the first. Raises Rejected where no time can be
        computed from the trace."""
        # Where loops or inline assembly hide work from the model, the least of it is still to do.
        least_ms = least_work(self._problem).least_bytes / self._gpu.bandwidth_gb_s / 1e6
        reason = "the time that it gives is none"
        try:
            form = self._captures.described(captured.forms[0])
            modelled = estimate(form.compiled.profile, trace, self._gpu)
            modelled = modelled.with_values(configurations=configurations(captured.forms))
            if modelled.modelled_ms is None:
                return modelled
            if isfinite(modelled.modelled_ms):
                return modelled.with_values(modelled_ms=max(modelled.modelled_ms, least_ms))
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            reason = str(error)
        # The trace is a candidate's word.
        told = f"its process answered with a trace that makes no sense: {reason}"
        raise Rejected(Outcome.CRASHED, Stage.COMPILE, told)

    def _opened(self, path: str, captured: Captured, log: Log) -> CandidateProcess:
        """A process in the interpreter, with the kernel imported. Raises Rejected."""
        process = self._servers.fork("interpreting", key=Path(path).parent.name)
        process.touched = captured.forms[0].plan.touched
        try:
            load(process, path, self._gpu.model_dump(mode="json"))
        except Rejected:
            process.end()
            log.output.append(process.output)
            raise
        return process

    def close(self) -> None:
        """Begin no more captures."""
        self._captures.close()

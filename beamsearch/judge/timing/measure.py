"""Measurements of one visit to a GPU: of a candidate alone, and of several subjects in turn."""

import statistics
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

import torch

from beamsearch.gpu.gauges import GpuState, gpu_state
from beamsearch.gpu.stopwatch import flush_bytes
from beamsearch.judge.capture.forms import Form
from beamsearch.judge.rejection import FIRST_CALL_S, GPU_CALL_S, Log, Rejected, guarded
from beamsearch.judge.room import Room
from beamsearch.judge.runner.client import CALL, Replay, RunnerProcess
from beamsearch.judge.runner.reference import COMPILE_MODES, problem_message
from beamsearch.judge.timing.least_time import below_arithmetic, impossible, needed_share
from beamsearch.judge.timing.timing import (
    UNTIMED_CALLS,
    Clocks,
    Sample,
    begin,
    checked_share,
    prepare,
    repetitions,
    time_calls,
    undisturbed,
)
from beamsearch.judge.verification.inputs import InputSet
from beamsearch.judge.verification.stages import bind
from beamsearch.problem.least_work import least_work
from beamsearch.problem.problem import Problem
from beamsearch.records.job import Comparison, KernelTime, Subject
from beamsearch.records.measurement import Measurement
from beamsearch.records.verdict import Outcome, Stage
from kernel_profiling.gpus import Gpu

FLUSH_SHARE = 0.5
"""Part of the datasheet's bandwidth at which the L2 is flushed, at least; an H200 reaches 0.7."""
LIBRARY_SHARE = 1 / 3
"""Part of a call's time that torch's own operations may take. A kernel that leaves a last sum over
partial results to PyTorch stays below it (a fifth to a quarter on an H200); one that leaves the
operation there, and launches a Triton kernel for show, does not."""
PLAIN_CALLS = 5
"""Timed calls without a graph."""
FIRST_BASELINE_S = {"eager": FIRST_CALL_S, "compile": 120.0, "max_autotune": 300.0}
"""Seconds of a baseline's first call: torch.compile compiles in it, and max-autotune tunes, up to
90 s on an H200. What they find is stored for the next time. A reference that loops over hundreds of
steps is unrolled, and takes longer."""
ROUNDS = 10
"""Turns of each subject: a drift of the clocks then meets all alike. Half of them where a call
takes above 30 ms."""
TURN_MS = 5.0
"""Kernel time of one turn."""
LOST = "the process that timed it was lost by another subject's fault"


class Visit:
    """One stay on one GPU. Everything here needs the lane."""

    def __init__(self, problem: Problem, gpu: Gpu, device: int) -> None:
        properties = torch.cuda.get_device_properties(device)
        self.device_name: str = properties.name
        self.gpu_uuid = f"GPU-{properties.uuid}"
        self.l2_bytes = int(getattr(properties, "L2_cache_size", 0)) or gpu.l2_bytes
        self.flush_ms = flush_bytes(self.l2_bytes) / (FLUSH_SHARE * gpu.bandwidth_gb_s * 1e6)
        """What one flush of the L2 takes at most."""
        self.name = uuid.uuid4().hex[:12]
        self.problem = problem
        self._gpu = gpu
        self._device = f"cuda:{device}"
        self._work = least_work(problem)
        self.room = Room(self._device, self._work.least_bytes)

    @contextmanager
    def timed_inputs(self, bound: Sequence[InputSet]) -> Iterator[InputSet]:
        """The set to time on, of the problem's own distribution where one proves something; it is
        then as it was."""
        stored = [inputs for inputs in bound if inputs.shared is not None]
        own = [inputs for inputs in stored if inputs.distribution == "own"]
        timed = (own or stored)[0]
        seed = timed.seed
        try:
            yield timed
        finally:
            if timed.seed != seed:
                timed.renew(seed)
                timed.expect()

    def measure(self, replay: Replay, timed: InputSet, log: Log) -> Measurement:
        """Time a candidate that is right so far. Raises Rejected."""
        before = gpu_state(self.gpu_uuid)
        count = repetitions(prepare(replay, timed, FIRST_CALL_S))
        clocks = Clocks()

        def series() -> list[Sample]:
            samples = time_calls(replay, timed, count, checked_share(count))
            clocks.believe(samples, self.flush_ms, replay.empty)
            return samples

        samples = undisturbed(series)
        plain = time_calls(replay, timed, PLAIN_CALLS, checked_share(PLAIN_CALLS), plain=True)
        measurement = self.measurement(samples, plain, before, replay)
        without = f"; {replay.no_graph}" if replay.no_graph else ""
        log.passed(Stage.TIMING, "clocks", f"{len(samples)} calls on new values{without}")
        time_ms = measurement.time_ms
        self._check_share(replay, time_ms, log)
        needed = partial(needed_share, self.problem, self._device)
        reason = impossible(time_ms, self._work, self._gpu, self.l2_bytes, needed)
        if reason:
            raise Rejected(Outcome.DISALLOWED, Stage.TIMING, reason)
        if told := below_arithmetic(time_ms, self._work, self._gpu):
            log.reported(Stage.TIMING, "floor", False, told)
        return measurement

    def _check_share(self, replay: Replay, whole: float, log: Log) -> None:
        """Torch's own operations take a third of a call at most, of whose time the results were
        compared: a kernel may take longer where it does no good. Raises Rejected."""
        told = guarded(Stage.TIMING, "timing", replay.ask, "share", GPU_CALL_S, name=CALL)
        part = float(told["operations_ms"])
        if part > LIBRARY_SHARE * whole:
            reason = (
                f"torch's own operations take {part:.4g} ms of {whole:.4g} ms; a third is the "
                "most: do this work in a Triton kernel"
            )
            raise Rejected(Outcome.DISALLOWED, Stage.TIMING, reason)
        if part:
            share = f"{part / whole:.0%} of the time in torch's operations"
            log.passed(Stage.TIMING, "kernels", share)

    def measurement(
        self, samples: Sequence[Sample], plain: Sequence[Sample], before: GpuState, replay: Replay
    ) -> Measurement:
        """Samples as a record; `plain` are those without a graph, `before` the gauges ahead."""
        times_ms = [sample.ms for sample in samples]
        fifths = statistics.quantiles(times_ms, n=5, method="inclusive")
        return Measurement(
            source="measured",
            time_ms=statistics.median(times_ms),
            p20_ms=fifths[0],
            p80_ms=fifths[3],
            count=len(times_ms),
            gpu=self.device_name,
            gpu_uuid=self.gpu_uuid,
            visit=self.name,
            graph=not replay.no_graph,
            plain_ms=statistics.median(sample.ms for sample in plain),
            clock_start_mhz=before.sm_clock_mhz,
            clock_end_mhz=gpu_state(self.gpu_uuid).sm_clock_mhz,
            temperature_c=before.temperature_c,
        )


@dataclass
class Timing:
    """One subject of a comparison."""

    replay: Replay
    is_baseline: bool
    estimate: float = 0.0
    turns: list[list[Sample]] = field(default_factory=list)
    plain: list[Sample] = field(default_factory=list)
    """The same calls without a graph."""
    clocks: Clocks = field(default_factory=Clocks)


@dataclass
class Comparer:
    """One comparison, A B C, A B C, …; needs the lane. Kernels have a new runner; baselines have
    one of their own, in which there is never a candidate's code and which keeps what it compiled.

    Where memory is short, one subject at a time is bound, anew in each of its turns: a library that
    finds no workspace takes a slower way, and would be compared by that.
    """

    visit: Visit
    timed: InputSet
    kernels: Callable[[], RunnerProcess]
    """A new runner for kernels."""
    baselines: Callable[[], RunnerProcess]
    """The baselines' own."""
    _runners: dict[bool, RunnerProcess] = field(default_factory=dict)
    """Those in use, by whether they are the baselines'."""
    _rounds: int = ROUNDS
    _timings: dict[str, Timing] = field(default_factory=dict)
    _failed: dict[str, str] = field(default_factory=dict)
    _lost: set[str] = field(default_factory=set)
    """Of those, the ones that another's fault took along."""
    _one_at_a_time: bool = False
    """Whether only the subject whose turn it is has memory."""
    _is_slow: bool = False
    """Whether torch.compile ran out of time."""

    def run(
        self, subjects: Sequence[Subject], forms: Mapping[str, Form], *, kernels: bool = False
    ) -> Comparison:
        """Times of all subjects; `forms` are the kernels' plans, by name. `kernels`: also which GPU
        kernels the baselines run. Raises OutOfMemoryError where one alone does not fit."""
        before = gpu_state(self.visit.gpu_uuid)
        launched = {}
        try:
            try:
                self._interleave(subjects, forms)
            except torch.OutOfMemoryError:
                if self._one_at_a_time:
                    raise
                self._begin_again()
                self._interleave(subjects, forms)
            if kernels:
                launched = self._kernels_of_baselines()
        finally:
            if False in self._runners:
                self._runners[False].end()
            for timing in self._timings.values():
                timing.replay.unbind()
        measurements, turns = {}, {}
        for name, timing in self._timings.items():
            samples, replay = [sample for turn in timing.turns for sample in turn], timing.replay
            measurements[name] = self.visit.measurement(samples, timing.plain, before, replay)
            turns[name] = [statistics.median(sample.ms for sample in turn) for turn in timing.turns]
        return Comparison(
            measurements=measurements, failed=self._failed, turns=turns, kernels=launched
        )

    def _kernels_of_baselines(self) -> dict[str, list[KernelTime]]:
        """By baseline; none where a trace fails: it explains a time, and decides nothing."""
        found = {}
        for name, timing in self._timings.items():
            if timing.is_baseline:
                with suppress(Rejected), self._bound(timing):
                    ask = timing.replay.ask
                    told = guarded(Stage.TIMING, "kernels", ask, "kernels", GPU_CALL_S, name=CALL)
                    found[name] = [KernelTime.model_validate(item) for item in told["kernels"]]
        return found

    @contextmanager
    def _bound(self, timing: Timing) -> Iterator[None]:
        """The subject on the arguments; of one at a time, only meanwhile. Raises Rejected."""
        if not self._one_at_a_time:
            yield
            return
        assert self.timed.shared is not None
        self.timed.sets.release()
        bind(timing.replay, self.timed.shared, GPU_CALL_S)
        time_calls(timing.replay, self.timed, UNTIMED_CALLS)
        yield
        timing.replay.unbind()

    def _interleave(self, subjects: Sequence[Subject], forms: Mapping[str, Form]) -> None:
        self._prepare_all(subjects, forms)
        if any(timing.estimate >= 30 for timing in self._timings.values()):
            self._rounds = ROUNDS // 2
        undisturbed(self._take_turns)

    def _begin_again(self) -> None:
        """With one subject at a time, and none of the memory that was taken."""
        self._one_at_a_time = True
        for runner in self._runners.values():
            runner.end()
        self._runners, self._timings, self._failed, self._lost = {}, {}, {}, set()

    def _prepare_all(self, subjects: Sequence[Subject], forms: Mapping[str, Form]) -> None:
        """Prepare each; those that were lost with another's runner once more, without that one."""
        for subject in subjects:
            self._attempt(subject.name, self._prepare, subject, forms.get(subject.name))
        again = [subject for subject in subjects if subject.name in self._lost]
        for subject in again:
            del self._failed[subject.name]
        for subject in again:
            self._attempt(subject.name, self._prepare, subject, forms.get(subject.name))

    def _attempt(self, name: str, action: Callable[..., None], *given: object) -> None:
        """One step of a subject, which is out where it is rejected; with it what else ran in a
        runner that is gone."""
        try:
            action(*given)
        except Rejected as rejection:
            if rejection.short_of_memory and not self._one_at_a_time:
                raise torch.OutOfMemoryError(rejection.reason) from rejection
            self._failed[name] = rejection.reason
            lost = self._timings.pop(name, None)
            self.timed.sets.mend()  # the others must not find what it wrote
            if lost is None:
                return
            lost.replay.unbind()
            if lost.replay.runner.alive:
                return
            gone = lost.replay.runner
            for other in [n for n, timing in self._timings.items() if timing.replay.runner is gone]:
                self._failed[other] = LOST
                self._lost.add(other)
                del self._timings[other]
            self._runners = {kind: r for kind, r in self._runners.items() if r is not gone}

    def _prepare(self, subject: Subject, form: Form | None) -> None:
        """Load, bind, check twice, and estimate. Raises Rejected."""
        name, is_baseline = subject.name, subject.kind != "kernel"
        if self._is_slow and subject.kind == "max_autotune":
            compile_s = FIRST_BASELINE_S["compile"]
            reason = f"torch.compile takes longer than {compile_s:.0f} s without it"
            raise Rejected(Outcome.TIMEOUT, Stage.TIMING, reason)
        if is_baseline not in self._runners:
            self._runners[is_baseline] = self.baselines() if is_baseline else self.kernels()
        runner = self._runners[is_baseline]
        timing = self._timings[name] = Timing(Replay(runner, name), is_baseline)
        first_s = FIRST_CALL_S
        if subject.kind == "kernel":
            assert form is not None
            given = (name, form.plan, form.compiled, FIRST_CALL_S)
            timing.replay = guarded(Stage.TIMING, "loading", runner.load, *given)
        else:
            first_s = FIRST_BASELINE_S[subject.kind]
            mode, problem = COMPILE_MODES[subject.kind], problem_message(self.visit.problem)
            message = {"name": name, "problem": problem, "mode": mode}
            guarded(Stage.LOAD, "reference", runner.ask, "reference", first_s, **message)
        self._make_room(name)
        try:
            if is_baseline:
                begin(timing.replay, self.timed, first_s)
            timing.estimate = prepare(timing.replay, self.timed, first_s)
            if self._one_at_a_time:
                timing.replay.unbind()
        except Rejected as rejection:
            if not (is_baseline and rejection.outcome is Outcome.TIMEOUT):
                raise
            self._is_slow |= subject.kind == "compile"
            reason = f"its first call takes longer than {first_s:.0f} s"
            raise Rejected(Outcome.TIMEOUT, Stage.TIMING, reason) from rejection

    def _make_room(self, name: str) -> None:
        """One at a time from when there is too little room and others have a part of it."""
        is_crowded = self.visit.room.stays_crowded(self.timed.sets)
        others = [timing for other, timing in self._timings.items() if other != name]
        if others and is_crowded and not self._one_at_a_time:
            self._one_at_a_time = True
            for timing in others:
                timing.replay.unbind()

    def _take_turns(self) -> None:
        """So many turns of all that are still in. Raises Shared."""
        for timing in self._timings.values():
            timing.turns, timing.plain = [], []
        for action in (*[self._turn] * self._rounds, self._believe):
            for name, timing in list(self._timings.items()):
                if name in self._timings:  # not lost with another's runner
                    self._attempt(name, action, timing)

    def _turn(self, timing: Timing) -> None:
        """As many calls as fit, and one without its graph; results of kernels are compared: no
        baseline counts its calls to leave some out. Raises Rejected."""
        count = max(2, min(10, round(TURN_MS / max(timing.estimate, 1e-3))))
        of_turns, of_plain = (
            0.0 if timing.is_baseline else checked_share(self._rounds * calls)
            for calls in (count, 1)
        )
        with self._bound(timing):
            timing.turns.append(time_calls(timing.replay, self.timed, count, of_turns))
            timing.plain += time_calls(timing.replay, self.timed, 1, of_plain, plain=True)

    def _believe(self, timing: Timing) -> None:
        """The clocks agree, as where a candidate is timed alone. Raises Rejected, and Shared."""
        samples = [sample for turn in timing.turns for sample in turn]
        timing.clocks.believe(samples, self.visit.flush_ms, timing.replay.empty)

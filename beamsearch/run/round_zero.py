"""Round 0: the first kernel, judged before anything is spent on others, and the floor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from beamsearch.baselines.floor import measure_floor
from beamsearch.baselines.reference_times import no_baselines
from beamsearch.errors import KernelError, OutOfBudget, Unanswered, Waiting
from beamsearch.executor.executor import Executor
from beamsearch.gpu.machine import Machine
from beamsearch.problem.kernel import alike
from beamsearch.problem.problem import Problem
from beamsearch.proposer.questions import FirstQuestion, ProblemCard, Proposer
from beamsearch.records.baselines import Baselines, baseline_subjects
from beamsearch.records.candidate import Candidate
from beamsearch.records.job import FloorJob, JudgeJob, ProfileJob, Subject
from beamsearch.records.measurement import Measurement
from beamsearch.records.ratios import comparable_times
from beamsearch.records.round import RoundRecord
from beamsearch.records.trace import Trace, recorded, write_text
from beamsearch.run.beside import Beside
from beamsearch.run.candidates import source_fingerprint
from beamsearch.run.first_kernels import FirstKernels, first_candidates, first_name
from beamsearch.run.progress import Progress
from beamsearch.run.round import hand_over
from beamsearch.run.stop import StopToken
from beamsearch.search.survivors import distinct
from kernel_profiling.profile import Profile

if TYPE_CHECKING:
    from beamsearch.llm.batch_files import Mailbox
    from beamsearch.run.observer import Observer
    from kernel_profiling.profile import Floor

INPUT = first_name(0)
"""Name of the input kernel."""


@dataclass(frozen=True)
class FirstRound:
    """What stands before the rounds of the search, each step taken once."""

    trace: Trace
    problem: Problem
    executor: Executor
    progress: Progress
    observer: Observer
    machine: Machine
    stop: StopToken
    """Set when the user stops the run."""
    spare_lane: bool
    """Whether one lane may profile the first kernel while another judges it."""

    def find_kernel(self, card: ProblemCard, proposer: Proposer, mailbox: Mailbox | None) -> str:
        """The source of a first kernel, where none came with the problem: the fastest of those that
        the compiler and the model write. Raises KernelError where none is correct, Waiting where it
        needs answers to a batch, or more than a limit leaves."""
        self._keep(self._floor_beside())
        self.observer.worker(0, "looking for a first kernel")
        floor = self.progress.record.floor
        first = FirstKernels(
            trace=self.trace,
            executor=self.executor,
            proposer=proposer,
            question=FirstQuestion(problem=card, gpu=self.executor.gpu, floor=floor),
            quick=self.progress.record.settings.quick,
            stop=self.stop,
            tell=self._tell,
        )
        try:
            return first.gather()
        except Unanswered as error:
            if mailbox is None:
                raise
            raise hand_over(mailbox) from error
        except Waiting:
            if mailbox is not None:
                mailbox.hand_over()  # what is answered is asked no more
            raise
        except OutOfBudget as error:
            raise Waiting(
                f"{error}, and no first kernel is correct yet: waits for a larger limit"
            ) from error

    def _tell(self, note: str) -> None:
        if note not in self.progress.record.notes:
            self.progress.note([note])
            self.observer.note(note)

    def run(self, source: str) -> None:
        """The whole round. Raises KernelError where the first kernel is not correct."""
        folder = self.trace.round(0)
        self.observer.worker(0, "verifying the input kernel")
        given = Subject(name=INPUT, source=source)
        if self.executor.measures:
            self.executor.prepare([given, *baseline_subjects()])
        floor = self._floor_beside()
        profile = self._profile_beside(given)
        first = recorded(folder / f"{INPUT}.json", Candidate, lambda: self._judge(source))
        if not first.verdict.correct:
            (folder / f"{INPUT}.json").unlink()
            raise KernelError(
                f"the input kernel does not compute {self.problem.name}: "
                f"{first.verdict.outcome.value} at {first.verdict.stage}: {first.verdict.reason}"
            )
        assert first.measurement is not None
        self._anchor(first.measurement)
        self.executor.anchor(given, self._anchor, self.trace.visits())
        self._keep(floor)
        if profile is not None:
            profile.result(self.stop)
        if not self.executor.measures:
            none = recorded(folder / "baselines.json", Baselines, no_baselines)
            self.progress.update(baselines=none)
        everyone = first_candidates(self.trace)
        times = comparable_times(self.trace, everyone)
        beam = self._different(distinct(everyone, times))
        done = RoundRecord(
            round=0,
            candidates=everyone,
            best=INPUT,
            beam=[c.name for c in beam[: self.progress.record.settings.beam]],
            running_best=INPUT,
            seconds=self.progress.seconds,
        )
        recorded(folder / "round.json", RoundRecord, lambda: done)
        last = self.trace.completed_rounds()[-1]  # of a run that goes on, a later one
        self.observer.round_ended(last, self.progress.save())

    def _different(self, candidates: list[Candidate]) -> list[Candidate]:
        """Those that are no other's kernel with another launch, such as two compilations are."""
        kept: dict[str, Candidate] = {}
        for candidate in candidates:
            source = self.trace.kernel_source(candidate)
            if not any(alike(source, other) for other in kept):
                kept[source] = candidate
        return list(kept.values())

    def _judge(self, source: str) -> Candidate:
        path = self.trace.round(0) / f"{INPUT}.py"
        write_text(path, source)
        judged = self.executor.run(JudgeJob(subject=Subject(name=INPUT, source=source)))
        self.stop.check()
        return Candidate(
            name=INPUT,
            round=0,
            description="the input kernel",
            author="input",
            kernel_file=self.trace.relative(path),
            fingerprint=source_fingerprint(source),
            verdict=judged.verdict,
            measurement=judged.measurement,
        )

    def _floor_beside(self) -> Beside[Floor] | None:
        """The floor, measured while the first kernel is compiled and judged; none where it is
        known."""
        if self.progress.record.floor is not None:
            return None
        if self.machine.elsewhere is not None or self.machine.measures < self.executor.measures:
            return Beside(lambda: self.executor.run(FloorJob()))
        return Beside(lambda: measure_floor(self.problem, self.machine, self.executor.usage))

    def _profile_beside(self, given: Subject) -> Beside[Profile] | None:
        """The profile of the only first kernel, which another lane may take while it is judged."""
        if not self.spare_lane or len(first_candidates(self.trace)) > 1:
            return None
        job = ProfileJob(subject=given)
        path = self.trace.profile(INPUT)
        return Beside(lambda: recorded(path, Profile, lambda: self.executor.run(job)))

    def _keep(self, floor: Beside[Floor] | None) -> None:
        if floor is not None:
            self.progress.update(floor=floor.result(self.stop))

    def _anchor(self, time: Measurement) -> None:
        """The input kernel's time in a visit: what other times of the visit are divided by."""
        if time.visit is not None:
            recorded(self.trace.visit(time.visit), Measurement, lambda: time)

"""Round 0: the first kernel, judged before anything is spent on others, floor and baselines."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from beamsearch.baseline import measure_baselines
from beamsearch.candidates import source_fingerprint
from beamsearch.errors import KernelError, OutOfBudget, Stopped, Unanswered, Waiting
from beamsearch.executor.elsewhere import Elsewhere
from beamsearch.executor.jobs import CompareJob, Executor, JudgeJob, Subject
from beamsearch.first_kernel import write_first
from beamsearch.floor import measure_floor
from beamsearch.problem import Problem
from beamsearch.progress import Progress
from beamsearch.proposer.questions import FirstQuestion, ProblemCard, Proposer
from beamsearch.records.candidate import Candidate
from beamsearch.records.measurement import Measurement
from beamsearch.records.round import RoundRecord
from beamsearch.records.run import Baselines
from beamsearch.records.trace import Trace, recorded, write_text
from beamsearch.rounds import hand_over

if TYPE_CHECKING:
    from beamsearch.display import Observer
    from beamsearch.llm.batch import Mailbox
    from profiling.gpus import Gpu

INPUT = "r0-s0"
"""Name of the input kernel."""


@dataclass(frozen=True)
class FirstRound:
    """What stands before the rounds of the search, each step taken once."""

    trace: Trace
    problem: Problem
    executor: Executor
    progress: Progress
    observer: Observer
    gpu: Gpu
    device: int | None
    stop: threading.Event
    """Set when the user stops the run."""

    def write_kernel(self, card: ProblemCard, proposer: Proposer, mailbox: Mailbox | None) -> str:
        """The source of a first kernel from the model, where none came with the problem.

        Raises Waiting where it needs answers to a batch, or more than a limit leaves."""
        self._measure_floor()
        self.observer.worker(0, "asking for a first kernel")
        floor = self.progress.record.floor
        question = FirstQuestion(problem=card, gpu=self.executor.gpu, floor=floor)
        try:
            source = write_first(self.trace, question, proposer, self.executor, self._check_stop)
        except Unanswered as error:
            if mailbox is None:
                raise
            raise hand_over(mailbox) from error
        except OutOfBudget as error:
            raise Waiting(
                f"{error}, and no first kernel is correct yet: waits for a larger limit"
            ) from error
        write_text(self.trace.input_file, source)
        return source

    def run(self, source: str) -> None:
        """The whole round. Raises KernelError where the first kernel is not correct."""
        folder = self.trace.round(0)
        self.observer.worker(0, "verifying the input kernel")
        resumed = (folder / f"{INPUT}.json").is_file()
        first = recorded(folder / f"{INPUT}.json", Candidate, lambda: self._judge(source))
        if not first.verdict.correct:
            (folder / f"{INPUT}.json").unlink()
            raise KernelError(
                f"the input kernel does not compute {self.problem.name}: "
                f"{first.verdict.outcome.value} at {first.verdict.stage}: {first.verdict.reason}"
            )
        assert first.measurement is not None
        self._anchor(first.measurement)
        if resumed and not isinstance(self.executor, Elsewhere):
            self._time_again(first.measurement, source)
        self._measure_floor()
        self.observer.worker(0, "measuring the baselines")
        baselines = recorded(
            folder / "baselines.json",
            Baselines,
            lambda: measure_baselines(
                self.executor, source, problem=self.problem, device=self.device
            ),
        )
        self.progress.update(baselines=baselines)
        done = RoundRecord(
            round=0, candidates=[first], best=INPUT, beam=[INPUT], running_best=INPUT
        )
        recorded(folder / "round.json", RoundRecord, lambda: done)
        self.observer.round_ended(done, self.progress.save())

    def _check_stop(self) -> None:
        if self.stop.is_set():
            raise Stopped("stopping")

    def _judge(self, source: str) -> Candidate:
        path = self.trace.round(0) / f"{INPUT}.py"
        write_text(path, source)
        judged = self.executor.run(JudgeJob(subject=Subject(name=INPUT, source=source)))
        self._check_stop()
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

    def _measure_floor(self) -> None:
        if self.progress.record.floor is None:
            floor = measure_floor(self.problem, self.gpu, self.device, self.executor.usage)
            self.progress.update(floor=floor)

    def _anchor(self, time: Measurement) -> None:
        """The input kernel's time in a visit: what other times of the visit are divided by."""
        if time.visit is not None:
            recorded(self.trace.visit(time.visit), Measurement, lambda: time)

    def _time_again(self, first: Measurement, source: str) -> None:
        """The anchor of this process's own visit, where a run is resumed."""
        if first.visit is None or not self.executor.measures:
            return
        subject = Subject(name=INPUT, source=source)
        again = self.executor.run(CompareJob(subjects=[subject])).measurements.get(INPUT)
        if again is not None:
            self._anchor(again)

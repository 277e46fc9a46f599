"""A run from start to finish, and from wherever it was stopped."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from beamsearch.baseline import measure_baselines
from beamsearch.candidates import source_fingerprint
from beamsearch.environment import describe, gpu_facts, gpu_warnings, pick_device
from beamsearch.errors import (
    BeamsearchError,
    KernelError,
    Stopped,
    Unanswered,
    UsageError,
    Waiting,
)
from beamsearch.executor.elsewhere import Elsewhere
from beamsearch.executor.jobs import CompareJob, Executor, JudgeJob, Subject
from beamsearch.executor.local import LocalExecutor
from beamsearch.executor.usage import Usage
from beamsearch.first_kernel import write_first
from beamsearch.floor import beaten_floor, measure_floor
from beamsearch.hold import folder_lock, stop_on_signal
from beamsearch.kernel import read_kernel
from beamsearch.ledger import keep_prices, other_prompts, save_ledger
from beamsearch.problem import Problem, least_work, read_problem
from beamsearch.proposer.card import make_card
from beamsearch.proposer.choose import make_mailbox, make_proposer
from beamsearch.proposer.questions import FirstQuestion, ProblemCard, Proposer
from beamsearch.records.candidate import Candidate
from beamsearch.records.measurement import Measurement
from beamsearch.records.round import RoundRecord
from beamsearch.records.run import Baselines, Confirmation, Environment, RunRecord
from beamsearch.records.trace import (
    Trace,
    kept_secret,
    read_record,
    recorded,
    write_record,
    write_text,
)
from beamsearch.records.usage import LaneUse
from beamsearch.rounds import Rounds, hand_over
from beamsearch.settings import Settings, differences
from beamsearch.standalone import standalone
from beamsearch.summary import (
    clear_scratch,
    comparable_times,
    results_tsv,
    summarise,
    totals,
)
from beamsearch.winner import choose_winner
from beamsearch.worker import Shared

if TYPE_CHECKING:
    from beamsearch.display import Observer
    from beamsearch.llm.batch import Mailbox
    from profiling.gpus import Gpu

INPUT = "r0-s0"
"""Name of the input kernel."""


def run(
    problem: Problem,
    settings: Settings,
    folder: Path,
    *,
    kernel: Path | None,
    observer: Observer,
) -> RunRecord:
    """Run in a folder, from the start or from what is there.

    Raises UsageError where the folder holds something else, KernelError where the input kernel does
    not compute the problem, EndpointError where nobody can be asked, Stopped after an interrupt.
    """
    problem = problem.with_dtype(settings.dtype)
    path = kernel or problem.input_kernel
    trace = Trace(folder)
    source = trace.first_source() if path is None else read_kernel(path)
    if trace.run_file.is_file():
        _same_run(trace, problem, settings, source)
    elif folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty and holds no run; give another --output")
    return _Run(trace, problem, settings, source, observer).go()


def resume(
    folder: Path,
    *,
    observer: Observer,
    limits: Mapping[str, int | float | None] | None = None,
) -> RunRecord:
    """Go on with a run from what is on disk, with its own settings; `limits` (`settings.LIMITS`)
    may grow."""
    trace = Trace(folder)
    record = trace.run_record()
    problem = replace(read_problem(trace.problem_file), name=record.problem)
    given = {name: value for name, value in (limits or {}).items() if value is not None}
    try:
        settings = Settings.model_validate(record.settings.model_dump() | given)
    except ValidationError as error:
        wrong = "; ".join(f"{item['loc'][-1]}: {item['msg']}" for item in error.errors())
        raise UsageError(f"these limits cannot be: {wrong}") from error
    problem = problem.with_dtype(settings.dtype)
    source = trace.first_source()
    return _Run(trace, problem, settings, source, observer).go()


def _same_run(trace: Trace, problem: Problem, settings: Settings, source: str) -> None:
    """Raise UsageError where the folder's run is another one, naming the difference."""
    there = trace.run_record()
    different = differences(there.settings, settings)
    if there.problem != problem.name or trace.problem_file.read_text() != problem.source:
        different.insert(0, f"problem: {there.problem} there, {problem.name} asked")
    if trace.first_source() != source:
        different.append("kernel: another input kernel there")
    if different and not trace.completed_rounds():
        shutil.rmtree(trace.rounds_folder, ignore_errors=True)  # nothing that was paid for is there
        trace.run_file.unlink()
    elif different:
        raise UsageError(
            f"{trace.folder} holds a run with other settings ({'; '.join(different)}); "
            "give another --output, or the same settings to go on with it"
        )


class _Run:
    """One run in its folder. Everything it decides, it decides from what is on disk."""

    def __init__(
        self,
        trace: Trace,
        problem: Problem,
        settings: Settings,
        source: str,
        observer: Observer,
    ) -> None:
        self.trace = trace
        self.problem = problem
        self.settings = settings
        self.source = source
        self.observer = observer
        self.stop = threading.Event()
        self.started = time.monotonic()
        self.earlier_s = 0.0
        self.usage = Usage()
        self.earlier_use = LaneUse()

    def go(self) -> RunRecord:
        """From wherever it is to the end."""
        device = pick_device(self.settings.device)
        gpu = gpu_facts(device, self.settings.target)
        environment = describe(device, self.settings.target)
        mailbox = make_mailbox(self.trace, self.settings)
        proposer = make_proposer(self.settings, dict(os.environ), self.trace, mailbox)
        if not (self.source or proposer.reads_prompts):
            raise UsageError(
                f"{self.problem.name} has no input_kernel.py; give a first kernel with --kernel, "
                "or let a model write it (OPENAI_API_KEY)"
            )
        with folder_lock(self.trace.folder):
            self._check_machine(environment)
            self.trace.sweep()
            write_text(self.trace.problem_file, self.problem.source)
            if self.source:
                write_text(self.trace.input_file, self.source)
            keep_prices(self.trace, self.settings.prices)
            self.record = self._open(environment, proposer.name)
            self.observer.run_started(self.record, self.trace.folder)
            for warning in gpu_warnings(device, least_work(self.problem).least_bytes):
                self.observer.note(warning)
            executor = self._executor(gpu, device)
            with stop_on_signal(self.stop):
                try:
                    if not self.source:
                        self._update(floor=measure_floor(self.problem, gpu, device))
                        self._write_first(executor, proposer, mailbox)
                    self._first_round(executor, gpu, device)
                    if (walls := executor.walls()).startswith("missing"):
                        self.observer.note(walls)
                    shared = Shared(
                        trace=self.trace,
                        card=self._card(),
                        settings=self.settings,
                        executor=executor,
                        proposer=proposer,
                        floor=self.record.floor,
                        observer=self.observer,
                        stop=threading.Event(),
                    )
                    reason = Rounds(shared, self._left_s, self.stop, self._save, mailbox).run()
                    if mailbox is not None:
                        mailbox.close()
                    return self._finish(executor, reason)
                except Waiting as error:
                    self._save(status="stopped", stop_reason=str(error))
                    raise Waiting(
                        f"{error}; then: python -m beamsearch resume {self.trace.folder}"
                    ) from error
                except (Stopped, KeyboardInterrupt) as error:
                    self._save(status="stopped", stop_reason="interrupted")
                    raise Stopped(
                        f"stopped; go on with: python -m beamsearch resume {self.trace.folder}"
                    ) from error
                except BeamsearchError as error:
                    self._save(status="stopped", stop_reason=str(error))
                    raise
                finally:
                    self.stop.set()
                    executor.close()
                    clear_scratch(self.trace)

    # -- opening

    def _executor(self, gpu: Gpu, device: int | None) -> LocalExecutor | Elsewhere:
        """This machine's; where it has no GPU and the run is measured on one, a stand-in."""
        there = self.record.environment.gpu
        if there is not None and device is None:
            return Elsewhere(there)
        return LocalExecutor(
            self.problem,
            gpu=gpu,
            device=device,
            scratch=self.trace.scratch,
            seed=self._judge_seed(),
            profiler=self.settings.profiler,
            usage=self.usage,
        )

    def _judge_seed(self) -> int:
        """What the judge's inputs are drawn from: the same however often the run is resumed."""
        if self.settings.seed is not None:
            return self.settings.seed
        return kept_secret(self.trace.secret_file)

    def _check_machine(self, environment: Environment) -> None:
        """A run's times come from one kind of GPU, or all from the model."""
        if not self.trace.run_file.is_file():
            return
        there = self.trace.run_record().environment
        if there.gpu is not None and environment.gpu is None and self.trace.completed_rounds():
            return  # what needs no GPU can be done here
        if there.target != environment.target or (there.gpu is None) != (environment.gpu is None):
            times = f"measured on {there.gpu}" if there.gpu else f"modelled for {there.target}"
            raise UsageError(
                f"this run's times are {times}, and this machine "
                f"{'has ' + environment.gpu if environment.gpu else 'has no GPU'}; "
                "go on with it on a machine of the same kind, or start a run in another folder"
            )

    def _open(self, environment: Environment, who_thinks: str) -> RunRecord:
        if self.trace.run_file.is_file():
            record = self.trace.run_record()
            self.earlier_s = record.totals.seconds
            self.earlier_use = record.totals.lane or LaneUse()
            record = record.model_copy(update={"settings": self.settings, "status": "running"})
        else:
            record = RunRecord(
                problem=self.problem.name,
                problem_dtype=self.problem.dtype,
                settings=self.settings,
                environment=environment,
                who_thinks=who_thinks,
                status="running",
                baselines=Baselines(),
                notes=_notes(environment),
            )
        write_record(self.trace.run_file, record)
        return record

    def _card(self) -> ProblemCard:
        made_with = self.record.environment
        return make_card(self.problem, made_with.torch, made_with.triton)

    def _first_round(self, executor: Executor, gpu: Gpu, device: int | None) -> None:
        """Round 0: the input kernel verified before anything is spent, floor and baselines."""
        folder = self.trace.round(0)
        self.observer.worker(0, "verifying the input kernel")
        resumed = (folder / f"{INPUT}.json").is_file()
        first = recorded(folder / f"{INPUT}.json", Candidate, lambda: self._judge_input(executor))
        if not first.verdict.correct:
            self.trace.round(0).joinpath(f"{INPUT}.json").unlink()
            raise KernelError(
                f"the input kernel does not compute {self.problem.name}: "
                f"{first.verdict.outcome.value} at {first.verdict.stage}: {first.verdict.reason}"
            )
        assert first.measurement is not None
        here = resumed and not isinstance(executor, Elsewhere)
        self._anchor(first.measurement, executor if here else None)
        self._update(
            floor=self.record.floor or measure_floor(self.problem, gpu, device, self.usage)
        )
        self.observer.worker(0, "measuring the baselines")
        baselines = recorded(
            folder / "baselines.json",
            Baselines,
            lambda: measure_baselines(executor, self.source, problem=self.problem, device=device),
        )
        self._update(baselines=baselines)
        done = RoundRecord(
            round=0, candidates=[first], best=INPUT, beam=[INPUT], running_best=INPUT
        )
        recorded(folder / "round.json", RoundRecord, lambda: done)
        self.observer.round_ended(done, self._save())

    def _write_first(self, executor: Executor, proposer: Proposer, mailbox: Mailbox | None) -> None:
        """A first kernel from the model, where none came with the problem."""
        self.observer.worker(0, "asking for a first kernel")

        def check_stop() -> None:
            if self.stop.is_set():
                raise Stopped("stopping")

        question = FirstQuestion(problem=self._card(), gpu=executor.gpu, floor=self.record.floor)
        try:
            self.source = write_first(self.trace, question, proposer, executor, check_stop)
        except Unanswered as error:
            if mailbox is None:
                raise
            raise hand_over(mailbox) from error
        write_text(self.trace.input_file, self.source)

    def _judge_input(self, executor: Executor) -> Candidate:
        path = self.trace.round(0) / f"{INPUT}.py"
        write_text(path, self.source)
        judged = executor.run(JudgeJob(subject=Subject(name=INPUT, source=self.source)))
        if self.stop.is_set():
            raise Stopped("stopping")
        return Candidate(
            name=INPUT,
            round=0,
            description="the input kernel",
            author="input",
            kernel_file=self.trace.relative(path),
            fingerprint=source_fingerprint(self.source),
            verdict=judged.verdict,
            measurement=judged.measurement,
        )

    def _anchor(self, first: Measurement, executor: Executor | None) -> None:
        """The input kernel's time in this visit: what other times of the visit are divided by.

        Where the run is resumed it is timed again with the executor, which has its own visit.
        """
        if first.visit is None:
            return
        recorded(self.trace.visit(first.visit), Measurement, lambda: first)
        if executor is None or not executor.measures:
            return
        subject = Subject(name=INPUT, source=self.source)
        again = executor.run(CompareJob(subjects=[subject])).measurements.get(INPUT)
        if again is not None and again.visit is not None:
            recorded(self.trace.visit(again.visit), Measurement, lambda: again)

    def _left_s(self) -> float | None:
        if self.settings.time_limit_s is None:
            return None
        return self.settings.time_limit_s - self.earlier_s - (time.monotonic() - self.started)

    # -- the end

    def _finish(self, executor: Executor, reason: str) -> RunRecord:
        """The winner confirmed beside the baselines, and written as a file of its own."""
        self.observer.worker(0, "looking closer at the winner")
        best, notes = choose_winner(self.trace, executor, self.stop)
        source = (self.trace.folder / (best.kernel_file or "")).read_text()
        notes += other_prompts(self.trace)
        notes = [*self.record.notes, *(note for note in notes if note not in self.record.notes)]
        self._update(notes=notes)
        confirmation = None
        if executor.measures:
            self.observer.worker(0, "confirming the winner beside the baselines")
            confirmation = self._confirmation(executor, best, source)
            assert self.record.floor is not None
            device = pick_device(self.settings.device)
            floor = beaten_floor(self.problem, self.record.floor, confirmation.winner, device)
            self._update(floor=floor)
        self._save(status="finished", stop_reason=reason, confirmation=confirmation, best=best.name)
        write_text(self.trace.best_kernel_file, standalone(self.problem, source, best))
        self.observer.run_ended(self.record, self.trace.folder)
        return self.record

    def _confirmation(self, executor: Executor, best: Candidate, source: str) -> Confirmation:
        path = self.trace.confirmation_file
        if path.is_file() and read_record(path, Confirmation).name == best.name:
            return read_record(path, Confirmation)
        subjects = [
            Subject(name="winner", source=source),
            Subject(name="input", source=self.source),
            Subject(name="eager", kind="eager"),
            Subject(name="compile", kind="compile"),
            Subject(name="max_autotune", kind="max_autotune"),
        ]
        comparison = executor.run(CompareJob(subjects=subjects))
        if self.stop.is_set():
            raise Stopped("stopping")
        measured = comparison.measurements
        for name in ("winner", "input"):
            if name not in measured:
                raise BeamsearchError(
                    f"the {name} kernel could not be timed again: {comparison.failed.get(name)}"
                )
        baselines = Baselines(
            eager=measured.get("eager"),
            compile=measured.get("compile"),
            max_autotune=measured.get("max_autotune"),
            anchor=measured["input"],
            absent=comparison.failed,
        )
        record = Confirmation(
            name=best.name, winner=measured["winner"], input=measured["input"], baselines=baselines
        )
        write_record(path, record)
        return record

    # -- saving

    def _update(self, **fields: object) -> None:
        self.record = self.record.model_copy(update=fields)

    def _save(self, **fields: object) -> RunRecord:
        """`run.json` and `results.tsv`, rebuilt from the records."""
        done = self.trace.completed_rounds()
        if done:
            everyone = [c for record in done for c in record.candidates]
            times = comparable_times(self.trace, everyone)
            rounds, best = summarise(done, times)
            seconds = self.earlier_s + time.monotonic() - self.started
            use = self.earlier_use.plus(self.usage.so_far())
            sums = totals(self.trace, done, seconds, use)
            fields = {"rounds": rounds, "best": best, "totals": sums} | fields
            write_text(self.trace.results_file, results_tsv(everyone, times))
            save_ledger(self.trace, self.settings.prices)
        self._update(**fields)
        write_record(self.trace.run_file, self.record)
        return self.record


def _notes(environment: Environment) -> list[str]:
    if environment.gpu is not None:
        return []
    return [
        f"No NVIDIA GPU here: times are modelled for {environment.target} and print with ~; "
        "nothing was measured, and kernels were verified in Triton's interpreter on shrunk shapes "
        "only."
    ]

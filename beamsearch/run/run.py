"""A run from start to finish, and from wherever it was stopped."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import ValidationError

from beamsearch.errors import BeamsearchError, EndpointError, Stopped, UsageError, Waiting
from beamsearch.executor.choice import open_executor
from beamsearch.executor.remote import RemoteExecutor
from beamsearch.gpu.gauges import gpu_warnings
from beamsearch.gpu.usage import Usage
from beamsearch.judge.sandbox.isolation import missing_in_words
from beamsearch.llm.costs import keep_prices, other_prompts
from beamsearch.llm.endpoint import BASE_URL, KEY, endpoint_configured, read_env
from beamsearch.paths import command
from beamsearch.problem.kernel import check_source, read_kernel
from beamsearch.problem.least_work import least_work
from beamsearch.problem.problem import Problem, read_problem
from beamsearch.proposer.factory import decided, make_mailbox, make_proposer
from beamsearch.proposer.prompts.problem_card import make_card
from beamsearch.records.audit import Fault
from beamsearch.records.baselines import Baselines
from beamsearch.records.packed import written_run
from beamsearch.records.run import Environment, RunRecord
from beamsearch.records.trace import Trace, kept_secret, write_text
from beamsearch.report.page import leave_report
from beamsearch.run.activity import ActivityFile
from beamsearch.run.baseline_times import BaselineTimes
from beamsearch.run.confirmation import slower_than_compiler
from beamsearch.run.context import Shared
from beamsearch.run.first_kernels import NEXT
from beamsearch.run.known_floor import KnownFloor
from beamsearch.run.lock import folder_lock, stop_on_signal
from beamsearch.run.memory.earlier_runs import learn
from beamsearch.run.place import check_place, find_place, notes_on, with_gpus
from beamsearch.run.progress import Progress
from beamsearch.run.results import clear_scratch
from beamsearch.run.round import Rounds
from beamsearch.run.round_zero import FirstRound
from beamsearch.run.standalone import standalone
from beamsearch.run.stop import StopToken
from beamsearch.run.winner import confirmed_winner
from beamsearch.settings import LIMITS, PLACES, Settings, check_means_something, differences

if TYPE_CHECKING:
    from beamsearch.executor.executor import Executor
    from beamsearch.llm.batch_files import Mailbox
    from beamsearch.proposer.questions import Proposer
    from beamsearch.run.observer import Observer


def run(
    problem: Problem,
    settings: Settings,
    folder: Path,
    *,
    kernel: Path | str | None,
    observer: Observer,
    flaws: Sequence[Fault] = (),
    beside: int = 1,
) -> RunRecord:
    """Run in a folder, from the start or from what is there. `kernel`: a file, or a source; the
    problem's own where there is none.

    Raises UsageError where the folder holds something else, KernelError where the input kernel does
    not compute the problem, EndpointError where nobody can be asked, Stopped after an interrupt.
    `llm = auto` is decided here, once: a run that goes on is thought for by who began it. `flaws`
    of the problem stand in its record. `beside`: runs of this machine at once.
    """
    problem = problem.with_dtype(settings.dtype).with_precision(settings.precision)
    problem = problem.with_backward(settings.backward)
    path = kernel or problem.input_kernel
    trace = written_run(folder)
    if isinstance(path, str):
        check_source(path)
        source = path
    else:
        source = trace.first_source() if path is None else read_kernel(path)
    if trace.run_file.is_file():
        if settings.llm.kind == "auto":
            settings = settings.thought_by(_who_goes_on(trace.run_record()))
    elif not trace.barely_begun():
        raise UsageError(f"{folder} is not empty and holds no run; give another --output")
    settings = decided(settings)
    return _Run(trace, problem, settings, source, observer, flaws=flaws, beside=beside).go(
        lambda: _same_run(trace, problem, settings, source)
    )


def resume(
    folder: Path,
    *,
    observer: Observer,
    limits: Mapping[str, int | float | None] | None = None,
) -> RunRecord:
    """Go on with a run from what is on disk, with its own settings; `limits` (`settings.LIMITS`)
    may grow, and where it is done (`settings.PLACES`) may change. Raises what `run` raises."""
    trace = written_run(folder)
    record = trace.run_record()
    problem = replace(read_problem(trace.problem_file), name=record.problem)
    given = {name: value for name, value in (limits or {}).items() if value is not None}
    asked = record.settings.model_dump() | {"llm": _who_goes_on(record)}
    if any(name in given for name in PLACES):
        asked |= dict.fromkeys(PLACES)
    asked |= given
    try:
        settings = Settings.model_validate(asked)
    except ValidationError as error:
        wrong = "; ".join(f"{item['loc'][-1]}: {item['msg']}" for item in error.errors())
        raise UsageError(f"these limits cannot be: {wrong}") from error
    check_means_something(settings, given)
    problem = problem.with_dtype(settings.dtype).with_precision(settings.precision)
    problem = problem.with_backward(settings.backward)
    source = trace.first_source()
    more = any(name in LIMITS for name in given)
    return _Run(trace, problem, settings, source, observer, more).go(lambda: None)


def _who(record: RunRecord) -> str:
    """`llm` of a run that was begun; records of old runs may not have it decided."""
    if record.settings.llm.kind != "auto":
        return str(record.settings.llm)
    return "playbook" if record.who_thinks == "playbook" else "openai"


def _who_goes_on(record: RunRecord) -> str:
    """`llm` of a run that is to go on here. Raises EndpointError where it cannot."""
    llm = _who(record)
    if llm == "openai" and not endpoint_configured(read_env()):
        raise EndpointError(
            f"{record.who_thinks} thinks in this run, and no model endpoint is configured here: "
            f"set {KEY} (in the environment or in .env), or {BASE_URL} for an endpoint that asks "
            "for no key; without a model, start a run in another folder with --llm playbook"
        )
    return llm


def _same_run(trace: Trace, problem: Problem, settings: Settings, source: str) -> None:
    """Raise UsageError where the folder's run is another one, naming the difference; one that has
    nothing yet which took long or was paid for is removed. To be called with the folder's lock."""
    if not trace.run_file.is_file():
        return
    there = trace.run_record()
    different = differences(there.settings.thought_by(_who(there)), settings)
    if there.problem != problem.name or trace.problem_file.read_text() != problem.source:
        there_told, told = (
            f"{item} scaled to {scaled}" if scaled else item
            for item, scaled in ((there.problem, there.scaled), (problem.name, problem.scaled))
        )
        different.insert(0, f"problem: {there_told} there, {told} asked")
    if trace.first_source() != source:
        different.append("kernel: another input kernel there")
    if not different:
        return
    kept = ["completed rounds"] if trace.completed_rounds() else trace.paid_for()
    if kept:
        raise UsageError(
            f"{trace.folder} holds a run with other settings ({'; '.join(different)}), and "
            f"{kept[0]} of it; give another --output, or the same settings to go on with it"
        )
    shutil.rmtree(trace.rounds_folder, ignore_errors=True)
    trace.run_file.unlink()
    trace.learned_file.unlink(missing_ok=True)


class _Run:
    """One run in its folder. Everything it decides, it decides from what is on disk."""

    def __init__(
        self,
        trace: Trace,
        problem: Problem,
        settings: Settings,
        source: str,
        observer: Observer,
        asked_for_more: bool = False,
        flaws: Sequence[Fault] = (),
        beside: int = 1,
    ) -> None:
        self.trace = trace
        self.beside = beside
        self.asked_for_more = asked_for_more
        self.flaws = flaws
        self.problem = problem
        self.settings = settings
        self.source = source
        self.observer = observer
        self.stop = StopToken()
        self.started = time.monotonic()
        self.usage = Usage()
        self.ended: tuple[str | None, int] | None = None
        """Why it had ended before, and its rounds then, where it was there and had."""

    def go(self, check: Callable[[], None]) -> RunRecord:
        """From wherever it is to the end; `check` is called first of all that needs the folder
        locked."""
        settings = self.settings
        self.place = find_place(settings, self.trace)
        self.machine = self.place.machines[0]
        environment = self.place.environment
        mailbox = make_mailbox(self.trace, self.settings)
        proposer = make_proposer(self.settings, dict(os.environ), self.trace, mailbox)
        if not (self.source or proposer.reads_prompts or self.machine.measures):
            raise UsageError(
                f"{self.problem.name} has no input_kernel.py; {NEXT}, or run where there is an "
                "NVIDIA GPU: there, torch.compile's own Triton code is taken"
            )
        with folder_lock(self.trace.folder):
            check()
            check_place(self.trace, environment)
            self.trace.sweep()
            learn(self.trace, self.settings)
            write_text(self.trace.problem_file, self.problem.source)
            if self.source:
                write_text(self.trace.input_file, self.source)
            keep_prices(self.trace, self.settings.prices)
            self.progress = self._open(environment, proposer.name)
            before = self.progress.record.totals.seconds
            activity = ActivityFile(self.trace.activity_file, before, self.observer)
            self.observer = activity
            self.observer.run_started(self.progress.record, self.trace.folder)
            for warning in gpu_warnings(self.machine.device, least_work(self.problem).least_bytes):
                self.observer.note(warning)
            executor = self._executor()
            with stop_on_signal(self.stop, self.observer.stopping):
                try:
                    return self._search(executor, proposer, mailbox)
                except Waiting as error:
                    self._stopped(str(error), "waiting")
                    raise Waiting(f"{error}; then: {self._resume()}") from error
                except (Stopped, KeyboardInterrupt) as error:
                    self._stopped("interrupted")
                    raise Stopped(f"stopped; go on with: {self._resume()}") from error
                except BeamsearchError as error:
                    self._stopped(str(error))
                    raise
                finally:
                    self.stop.set()
                    executor.close()
                    activity.close()
                    clear_scratch(self.trace)

    def _stopped(self, reason: str, status: Literal["stopped", "waiting"] = "stopped") -> None:
        self.observer.run_stopped(self.progress.save(status=status, stop_reason=reason))

    def _search(self, executor: Executor, proposer: Proposer, mailbox: Mailbox | None) -> RunRecord:
        """Round 0, the rounds of the search, and the end."""
        made_with = self.progress.record.environment
        card = make_card(self.problem, made_with.torch, made_with.triton)
        first = FirstRound(
            trace=self.trace,
            problem=self.problem,
            executor=executor,
            progress=self.progress,
            observer=self.observer,
            machine=self.machine,
            stop=self.stop,
            spare_lane=executor.measures and len(self.place.machines) > 1,
        )
        self.progress.note(card.notes())
        source = self.source or first.find_kernel(card, proposer, mailbox)
        first.run(source)
        floor = KnownFloor(self.problem, self.machine, executor, self.progress, self.observer)
        baselines = None
        if executor.measures and not isinstance(executor, RemoteExecutor):
            baselines = BaselineTimes(
                trace=self.trace,
                problem=self.problem,
                machine=self.machine,
                executor=executor,
                source=source,
                floor=floor,
                progress=self.progress,
                stop=self.stop,
            )
        if missing := executor.missing_isolation():
            self.observer.note(missing_in_words(missing))
        shared = Shared(
            trace=self.trace,
            card=card,
            settings=self.settings,
            executor=executor,
            proposer=proposer,
            floor=self.progress.record.floor,
            observer=self.observer,
            stop=StopToken(self.stop),
        )
        rounds = Rounds(
            shared,
            self.progress,
            floor,
            interrupted=self.stop,
            baselines=baselines,
            mailbox=mailbox,
            asked_for_more=self.asked_for_more,
        )
        reason = rounds.run()
        if baselines is not None:
            baselines.end()
        if mailbox is not None:
            mailbox.close()
        return self._finish(executor, source, reason, floor)

    def _executor(self) -> Executor:
        """This machine's; where it has no GPU and the run is measured on one, a stand-in."""
        there = self.progress.record.environment.gpu
        if there is not None and not self.machine.measures:
            return RemoteExecutor(there)
        return open_executor(
            self.problem,
            self.place.machines,
            scratch=self.trace.scratch,
            seed=self._judge_seed(),
            profiler=self.settings.profiler,
            strict_nan=self.settings.strict_nan,
            usage=self.usage,
            tell=self.observer.note,
            cluster=self.place.cluster,
            lanes=self.settings.lanes,
            met=self.progress.met,
            beside=self.beside,
        )

    def _judge_seed(self) -> int:
        """What the judge's inputs are drawn from: the same however often the run is resumed."""
        if self.settings.seed is not None:
            return self.settings.seed
        return kept_secret(self.trace.secret_file)

    def _resume(self) -> str:
        return command("resume", self.trace.folder)

    def _open(self, environment: Environment, who_thinks: str) -> Progress:
        """The record that is there, running again, or a new one."""
        if self.trace.run_file.is_file():
            record = self.trace.run_record()
            if record.status == "finished":
                self.ended = record.stop_reason, len(self.trace.completed_rounds())
            record = record.with_values(
                settings=self.settings,
                environment=with_gpus(record.environment, environment),
                status="running",
                stop_reason=None,
            )
        else:
            record = RunRecord(
                problem=self.problem.name,
                scaled=self.problem.scaled,
                problem_dtype=self.problem.dtype,
                began=datetime.now(UTC),
                settings=self.settings,
                environment=environment,
                who_thinks=who_thinks,
                status="running",
                baselines=Baselines(),
                notes=notes_on(environment),
                flaws=list(self.flaws),
            )
        return Progress(self.trace, record, self.started, self.usage)

    def _finish(self, executor: Executor, source: str, reason: str, floor: KnownFloor) -> RunRecord:
        """The winner chosen, confirmed beside the baselines, and written as a file of its own."""
        progress = self.progress
        is_whole = self.trace.best_kernel_file.is_file() and self.trace.page_file.is_file()
        if is_whole and self.ended == (reason, len(self.trace.completed_rounds())):
            progress.nothing_done()
            told = "it had ended already, and nothing was done; with other limits it goes on: "
            self.observer.note(f"{told}{self._resume()} --rounds N --patience N")
            record = progress.save(status="finished", stop_reason=reason, best=progress.record.best)
            self.observer.run_ended(record, self.trace.folder)
            return record
        self.observer.worker(0, "looking closer at the winner, and timing it beside the baselines")
        best, confirmation, notes = confirmed_winner(
            self.trace, executor, source, self.stop, quick=self.settings.quick
        )
        progress.note([*notes, *other_prompts(self.trace)])
        if confirmation is not None:
            floor.after(confirmation.winner)
            progress.note(slower_than_compiler(confirmation))
        record = progress.save(
            status="finished", stop_reason=reason, confirmation=confirmation, best=best.name
        )
        won = self.trace.kernel_source(best)
        write_text(self.trace.best_kernel_file, standalone(self.problem, won, best))
        leave_report(self.trace)
        self.observer.run_ended(record, self.trace.folder)
        return record

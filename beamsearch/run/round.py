"""The rounds of a run: deal, work in parallel, confirm, keep the beam, leave the files."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from beamsearch.errors import (
    BeamsearchError,
    NeverAnswered,
    NoAnswer,
    OutOfBudget,
    Stopped,
    Unanswered,
    Waiting,
)
from beamsearch.llm.batch_files import FIRST, Mailbox
from beamsearch.records.amounts import amount
from beamsearch.records.candidate import Candidate
from beamsearch.records.ratios import comparable_times, ranked_time
from beamsearch.records.round import RoundRecord
from beamsearch.records.trace import read_record, recorded, write_record
from beamsearch.records.verdict import Outcome
from beamsearch.report.page import read_ahead
from beamsearch.run.baseline_times import BaselineTimes
from beamsearch.run.beside import Beside
from beamsearch.run.candidates import names_of
from beamsearch.run.context import RoundView, Shared
from beamsearch.run.in_flight import STOP_GRACE_S, InFlight
from beamsearch.run.known_floor import KnownFloor
from beamsearch.run.memory.attempts import condense
from beamsearch.run.memory.earlier_runs import earlier
from beamsearch.run.memory.lessons import lessons
from beamsearch.run.person import (
    PLAN,
    PersonsKernels,
    first_counted,
    given,
    is_unheard,
    resume_command,
)
from beamsearch.run.plans import differences, expectations
from beamsearch.run.prefetch import begin_profiles
from beamsearch.run.progress import Progress
from beamsearch.run.recorded import recorded_plan
from beamsearch.run.results import (
    absent_files,
    distance_to_floor,
    find_candidate,
    promote,
    round_results,
)
from beamsearch.run.settled import look_ahead, settled, told_early
from beamsearch.run.stop import StopToken
from beamsearch.run.tuning import tunings
from beamsearch.run.worker import Worker
from beamsearch.search.directions import Plan, deal
from beamsearch.search.stopping import Limits, stop_reason
from beamsearch.search.strategies import STRATEGIES, State


def hand_over(mailbox: Mailbox) -> Waiting:
    """Leave the unanswered questions as files; what to raise then."""
    files, requests, number = mailbox.hand_over()
    told = (
        f"waits for the answers to {amount(requests, 'request')} in {' and '.join(files)} "
        f"(hand-over {number}): put them into the run's folder as {mailbox.next_file}"
    )
    if mailbox.next_file != FIRST:
        told += ", beside the files there, which may stay"
    if strangers := mailbox.strangers():
        lines = amount(strangers, "line")
        told += f" ({lines} of the responses there answer no question of this run)"
    return Waiting(told)


class Rounds:
    """Rounds until there is a reason to stop, from whatever round is on disk."""

    def __init__(
        self,
        shared: Shared,
        progress: Progress,
        floor: KnownFloor,
        *,
        interrupted: StopToken,
        baselines: BaselineTimes | None = None,
        mailbox: Mailbox | None = None,
        asked_for_more: bool = False,
    ) -> None:
        """`asked_for_more`: who goes on raised a limit; rounds with nothing new do not end it."""
        self.shared = shared
        self.progress = progress
        self.floor = floor
        self.interrupted = interrupted
        """Set when the user stops the run."""
        self.baselines = baselines
        """Measured beside the first round, where times are measured."""
        self.mailbox = mailbox
        """The batch files, where questions go through them."""
        settings = shared.settings
        self.ahead: deque[InFlight] = deque()
        """The rounds after the one that is waited for, where rounds overlap."""
        self.early = ""
        """What a round came to whose kernels are judged and whose end is still to come."""
        self.strategy = STRATEGIES[settings.strategy]
        # A replay takes every recorded round, however its kernels do here.
        replays = settings.llm.kind == "replay"
        self.limits = Limits(
            rounds=settings.rounds,
            patience=None if replays else settings.patience,
            target_speedup=None if replays else settings.target_speedup,
            floor_margin=0.0 if replays else settings.floor_margin,
            quiet=not (replays or asked_for_more),
            candidates=settings.max_candidates or self.strategy.max_candidates,
        )

    def run(self) -> str:
        """Rounds until there is a reason to stop, which is returned. Raises Waiting where answers
        or a GPU are waited for; the requests that it leaves are those that are open then."""
        try:
            return self._until_a_reason()
        except (Unanswered, Waiting) as error:
            if self.early:
                self.shared.observer.note(self.early)
            if self.mailbox is None:
                raise
            if isinstance(error, Unanswered):
                raise hand_over(self.mailbox) from error
            self.mailbox.hand_over()
            raise

    def _until_a_reason(self) -> str:
        while True:
            done = self.shared.trace.completed_rounds()
            best = find_candidate(done, done[-1].running_best)
            everyone = [c for record in done for c in record.candidates]
            self.shared = replace(self.shared, floor=self.floor.after(best.measurement))
            reason = stop_reason(
                done,
                self._limits(),
                variants=self.shared.settings.variants,
                speedup=1 / comparable_times(self.shared.trace, everyone)[best.name],
                modelled=not self.shared.executor.measures,
                multiple_of_floor=distance_to_floor(
                    ranked_time(self.shared.trace, everyone, best), self.shared.floor
                ),
                out_of_time=self.progress.is_out_of_time(),
            )
            if reason is not None and self._is_begun_ahead(done):
                # Its answers are paid for, and whoever goes on later would find it begun.
                reason = self._round(done, is_last=True)
                if reason is None:
                    continue
            if reason is not None:
                if is_unheard(self.shared.trace):
                    self.shared.observer.note(
                        "what a person gave last is in no round yet; to go on with it: "
                        f"{resume_command(self.shared.trace, self.shared.settings)}"
                    )
                self._abandon()
                return reason
            limit = self._round(done)
            if limit is not None:
                return limit

    def _limits(self) -> Limits:
        """What ends the run; while a person waits to be heard, only what bounds the work."""
        if not is_unheard(self.shared.trace):
            return self.limits
        free = {"patience": None, "target_speedup": None, "floor_margin": 0.0, "quiet": False}
        return self.limits.with_values(**free)

    def _is_begun_ahead(self, done: list[RoundRecord]) -> bool:
        """Whether the next round was begun beside the last one, here or before the run stopped."""
        begun = (self.shared.trace.round(len(done)) / PLAN).is_file()
        overlaps = self.shared.settings.overlap > 0
        return overlaps and begun and not self.progress.is_out_of_time()

    def _round(self, done: list[RoundRecord], *, is_last: bool = False) -> str | None:
        """One round, and the beginning of those that overlap it unless it is the last. Which limit
        cut it short, where one did; it can be resumed."""
        number, overlap = len(done), self.shared.settings.overlap
        last = number if is_last else min(number + overlap, self.limits.rounds)
        for begun in range(number + len(self.ahead), max(number, last) + 1):
            self.ahead.append(self._begin(done[: max(1, begun - overlap)], begun))
        now = self.ahead.popleft()
        limit = self._work(done, now)
        if limit is None:
            self._close(done, now.plan)
        return limit

    def _abandon(self) -> None:
        """Stop rounds that were begun ahead; they are done again when the run goes on."""
        if self.ahead:
            self.shared.stop.set()
            give_up = time.monotonic() + STOP_GRACE_S
            while (working := self._working_ahead()) and time.monotonic() < give_up:
                working.wait_a_moment()

    def _working_ahead(self) -> InFlight | None:
        """A round that was begun ahead and has not ended."""
        return next((begun for begun in self.ahead if begun.is_working), None)

    def _begin(self, done: list[RoundRecord], number: int) -> InFlight:
        """Set a round's workers to work, who see these rounds of the run and no later one."""
        candidates = [c for record in done for c in record.candidates]
        by_name = {c.name: c for c in candidates}
        times = comparable_times(self.shared.trace, candidates)
        view = RoundView(
            number=number,
            candidates=by_name,
            times=times,
            memory=condense(
                candidates,
                times,
                lessons(self.shared.trace, len(done), candidates, times),
                self.shared.source,
                earlier(self.shared.trace, self.shared.card.name, self.shared.executor.gpu),
                expectations(self.shared.trace, len(done)),
            ),
            seen=names_of(candidates),
        )
        plan = recorded(
            self.shared.trace.round(number) / PLAN,
            Plan,
            lambda: self._plan(done, view),
        )
        self.shared.observer.round_started(number, plan)
        first = first_counted(self.shared.trace)
        for hint in plan.hints:
            if first[hint.number] == number:
                self.shared.observer.note(f"hint {hint.number} counts from now on: {hint.text}")
        view = replace(view, hints=[hint.text for hint in plan.hints])
        if self.baselines is not None:
            self.baselines.begin()
        jobs: list[Worker | PersonsKernels] = []
        if plan.kernels:
            best = by_name[done[-1].running_best]
            jobs.append(PersonsKernels(self.shared, view, plan.kernels, best))
        return InFlight(plan, jobs + [Worker(self.shared, view, a) for a in plan.assignments])

    def _plan(self, done: list[RoundRecord], view: RoundView) -> Plan:
        """Who does what in the round to come."""
        settings = self.shared.settings
        candidates = list(view.candidates.values())
        state = State(
            round=view.number,
            workers=self.limits.workers(done, settings.workers, settings.variants),
            seed=settings.seed or 0,
            candidates=candidates,
            times=view.times,
            beam=done[-1].beam,
            best=done[-1].running_best,
            stalled=view.number > 1 and not done[-1].win,
        )
        parents = self.strategy.parents(state)
        asked_about = [view.candidates[name] for name in dict.fromkeys(parents)]
        begin_profiles(self.shared, asked_about[1:])
        findings = {c.name: self.shared.findings(c) for c in asked_about}
        beside = [
            assignment
            for number in range(len(done), view.number)
            for assignment in read_record(self.shared.trace.round(number) / PLAN, Plan).assignments
        ]
        free = self.shared.proposer.reads_prompts
        plan = deal(parents, findings, candidates, free=free, beside=beside)
        if settings.llm.run is not None:
            return self._as_recorded(plan, view, settings.llm.run)
        return plan.with_values(**given(self.shared.trace, view.number))

    def _as_recorded(self, plan: Plan, view: RoundView, replayed: Path) -> Plan:
        """The plan of a replay: each worker as in the recorded run, whose reply was written for
        that parent, unless the parent is not there or is found wrong; and what a person gave it."""
        was = recorded_plan(replayed, view.number)
        if was is None:
            return plan
        sound = (Outcome.CORRECT, Outcome.UNPROVEN)
        known = {c.name for c in view.candidates.values() if c.verdict.outcome in sound}
        there = {a.worker: a for a in was.assignments if a.parent in known}
        return was.with_values(assignments=[there.get(a.worker, a) for a in plan.assignments])

    def _work(self, done: list[RoundRecord], now: InFlight) -> str | None:
        """Wait for a round's workers. Which limit was reached, if any; raises what one raised."""
        out_of_time = False
        looked = not self.shared.proposer.reads_prompts  # who asks no model reflects at once
        give_up: float | None = None
        while working := now if now.is_working else self._working_ahead():
            if working is not now and not (give_up or now.errors):
                break
            working.wait_a_moment()
            out_of_time = out_of_time or self.progress.is_out_of_time()
            if (out_of_time or self.interrupted.is_set()) and give_up is None:
                self.shared.stop.set()
                give_up = time.monotonic() + STOP_GRACE_S
            if now.is_judged and not looked and give_up is None:
                looked = True
                self._look_ahead(done, now.plan)
            if give_up is not None and time.monotonic() > give_up:
                break  # what still waits for a model or a kernel is abandoned, to be done again
        self.interrupted.check()
        if self.baselines is not None:
            self.baselines.end()
        if out_of_time and (now.errors or give_up):
            return "the time limit is reached"
        if now.is_judged and not looked:
            self._look_ahead(done, now.plan)
        return self._without_answers(now.workers, now.errors)

    def _without_answers(
        self,
        asked: Sequence[Worker],
        errors: list[tuple[Worker | PersonsKernels, BaseException]],
    ) -> str | None:
        """What becomes of a round in which some workers could not go on."""
        trouble = (Stopped, NoAnswer)
        for _, error in errors:
            if not isinstance(error, trouble):
                raise error
        for _, error in errors:
            if self.mailbox is not None and isinstance(error, Unanswered):
                raise error
        for _, error in errors:
            if isinstance(error, OutOfBudget):
                return str(error)
            if isinstance(error, Stopped):
                raise error
        later = any(not isinstance(error, NeverAnswered) for _, error in errors)
        if len(errors) == len(asked) and later:
            raise errors[0][1]  # nobody is answered: going on would only burn rounds
        for worker, error in errors:
            assert isinstance(worker, Worker)  # nobody is asked about a person's kernels
            worker.give_up(str(error))
        return None

    def _close(self, done: list[RoundRecord], plan: Plan) -> None:
        """Confirm a win, keep the beam, profile the round's best, leave the round's files."""
        number = len(done)
        candidates, by_name, standing = settled(
            self.shared, self.strategy, done, plan, self.interrupted
        )
        Beside(partial(read_ahead, self.shared.trace, candidates))
        best = standing.best
        worker = best.worker if best is not None else 0
        if best is not None:
            self.shared.observer.worker(worker or 0, f"profiling {best.name}", number)
            write_record(
                self.shared.trace.worker(number, worker) / "optimized_ncu_metrics.json",
                self.shared.profile(best),
            )
        promote(self.shared.trace, number, worker)
        record = RoundRecord(
            round=number,
            candidates=candidates,
            best_worker=worker,
            best=best.name if best else None,
            win=standing.win,
            beam=standing.beam,
            running_best=standing.running_best.name,
            absent=absent_files(self.shared.trace, number, best),
            tunings=tunings(self.shared.trace, number, plan),
            seconds=self.progress.seconds,
            **self._differences(number, candidates),
        )
        round_results(self.shared.trace, record, by_name, standing.times, self.shared.floor)
        write_record(self.shared.trace.round(number) / "round.json", record)
        self.early = ""
        self.shared.observer.round_ended(record, self.progress.save())

    def _look_ahead(self, done: list[RoundRecord], plan: Plan) -> None:
        """Confirm the best of a round and profile the parents of the next, which no reflection
        changes: the lane does it while the model is asked, and a run through batch files needs the
        GPU once a round, the last time included. What goes wrong here is met later."""
        with suppress(BeamsearchError):
            now = settled(self.shared, self.strategy, done, plan, self.interrupted)
            self.early = told_early(self.shared, done, now)
            leaves = self.mailbox is not None  # it ends here, to go on where there may be no GPU
            given = (self.strategy, done, now, self._limits(), self.interrupted)
            look_ahead(self.shared, *given, leaves=leaves)

    def _differences(self, number: int, candidates: list[Candidate]) -> dict[str, float | None]:
        """How different the round's plans are, and the kernels written for them."""
        if not self.shared.proposer.reads_prompts:
            return {}
        return differences(self.shared.trace, number, candidates)

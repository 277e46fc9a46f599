"""One worker's way through a round: profile, diagnose, propose, judge, reflect."""

from __future__ import annotations

import threading

from beamsearch.proposer.questions import (
    Diagnosis,
    DiagnosisQuestion,
    ReflectionQuestion,
    ReviewQuestion,
    Situation,
    VariantsQuestion,
)
from beamsearch.proposer.replies import (
    read_diagnosis,
    read_reflection,
    read_review,
)
from beamsearch.records.candidate import Candidate, Forecast
from beamsearch.records.proposal import Proposal
from beamsearch.records.ratios import comparable_times
from beamsearch.records.round import BenchmarkResults, Result
from beamsearch.records.trace import CANDIDATES, read_record, write_record, write_text
from beamsearch.run.bench import Bench
from beamsearch.run.candidates import Made, names_of
from beamsearch.run.context import RoundView, Shared
from beamsearch.run.plans import STRATEGY, other_way
from beamsearch.run.recorded import recorded_parent
from beamsearch.run.repairs import Repairs
from beamsearch.run.review import believed, pays, score
from beamsearch.run.tuning import Tuner
from beamsearch.search.directions import Assignment, worker_seed
from beamsearch.search.pairs import is_win
from kernel_profiling.ncu.line_counters import annotate

RESULTS = "benchmark_results.json"
"""Written last: where it stands, the worker is done, also where it had to give up."""


class Worker(Bench):
    """A worker in a round. `run` leaves its files."""

    def __init__(self, shared: Shared, view: RoundView, assignment: Assignment) -> None:
        super().__init__(shared, view, assignment)
        self.is_judged = threading.Event()
        """Set when its kernels are, and only its reflection is left."""

    def run(self) -> None:
        """The whole way. Raises Stopped or BeamsearchError; a bad reply or kernel is a verdict."""
        if (self.folder / RESULTS).is_file():
            for candidate in self._judged():
                self.shared.observer.candidate(candidate)
            self.is_judged.set()
            self.doing("done")
            return
        situation = self._situation()
        diagnosis = self._diagnose(situation)
        variants, problem = self._propose(situation, diagnosis)
        forecasts = self._review(situation, variants)
        known = score(self.view.candidates.values())
        made = []
        for number, variant in enumerate(variants):
            name = f"r{self.view.number}-w{self.assignment.worker}-v{number}"
            forecast = forecasts.get(number)
            aside = forecast is not None and forecast.fails and believed(known, name)
            made.append(Made(name, variant, forecast=forecast, set_aside=aside))
        self.shared.executor.prepare(self.candidates.unjudged(made, self.view.seen))
        candidates: list[Candidate] = []
        for item in made:
            candidates.append(self.judge(item, {**names_of(candidates), **self.view.seen}))
        if self.shared.proposer.reads_prompts:
            repairs = Repairs(self, situation, diagnosis)
            candidates += repairs.run(zip(made, candidates, strict=True))
        candidates += Tuner(self).run(candidates)
        if not candidates:
            name = f"r{self.view.number}-w{self.assignment.worker}-v0"
            candidates = [self.candidates.no_code(name, self.author("opt_reply"), problem)]
        candidates.sort(key=lambda candidate: candidate.name)
        self.is_judged.set()
        self._reflect(situation, diagnosis, candidates)
        self._results(candidates)
        self.doing("done")

    def give_up(self, reason: str) -> None:
        """End the round here, with the kernels judged so far, where a model gives no answer."""
        judged = self._judged()
        if not judged:
            name = f"r{self.view.number}-w{self.assignment.worker}-v0"
            judged = [self.candidates.no_code(name, self.author("opt_reply"), reason)]
        self._results(judged)

    def _judged(self) -> list[Candidate]:
        return [read_record(path, Candidate) for path in sorted(self.folder.glob(CANDIDATES))]

    def _situation(self) -> Situation:
        self.doing(f"profiling {self.parent.name}")
        profile = self.shared.profile(self.parent)
        write_record(self.folder / "input_ncu_metrics.json", profile)
        source = self.shared.source(self.parent)
        number, worker = self.view.number, self.assignment.worker
        return Situation(
            round=number,
            worker=worker,
            seed=worker_seed(self.shared.settings.seed or 0, number, worker),
            problem=self.shared.card,
            gpu=self.shared.executor.gpu,
            parent=self.parent.name,
            parent_source=source,
            parent_time=self.parent.measurement,
            parent_error=self.parent.verdict.rms_error,
            floor=self.shared.floor,
            profile=profile,
            findings=self.shared.findings(self.parent),
            annotated_source=annotate(profile, source),
            direction=self.assignment.direction,
            share=self.assignment.share,
            shares=self.assignment.shares,
            others=self.assignment.others,
            memory=self.memory,
            hints=self.view.hints,
            tuned=self.shared.settings.configurations(self.shared.executor.measures) > 0,
        )

    def _diagnose(self, situation: Situation) -> Diagnosis:
        origin = self.assignment.plan_of
        if origin is not None:
            plan = self.shared.trace.worker(origin.round, origin.worker) / STRATEGY
            earlier = read_record(plan, Diagnosis)
            write_record(self.folder / STRATEGY, earlier)
            return earlier
        self.doing(f"diagnosing {self.parent.name}: {self.assignment.direction}")
        question = DiagnosisQuestion(**dict(situation))
        diagnosis, problem = self.ask(
            question, "bottleneck_prompt", "bottleneck_response", read_diagnosis
        )
        if diagnosis is None:
            advice = [f for f in situation.findings if f.kind == situation.direction.finding]
            diagnosis = Diagnosis(
                bottleneck=situation.direction.finding,
                cause=f"no diagnosis could be read ({problem}); this is the profile's own finding",
                evidence=advice[0].evidence if advice else [],
                plan=advice[0].advice if advice else "rewrite the kernel for this bottleneck",
            )
        write_record(self.folder / STRATEGY, diagnosis)
        return diagnosis

    def _propose(self, situation: Situation, diagnosis: Diagnosis) -> tuple[list[Proposal], str]:
        self.doing(f"writing variants of {self.parent.name}: {self.assignment.direction}")
        count = self.shared.settings.variants
        known = [attempt.description for attempt in situation.memory.attempts]
        question = VariantsQuestion(
            **dict(situation),
            diagnosis=diagnosis,
            variants=count,
            other_way=other_way(diagnosis, known) if count > 1 else None,
            seen=sorted(self.view.seen),
        )
        base = situation.parent_source
        if (replayed := self.shared.settings.llm.run) is not None:
            base = recorded_parent(replayed, self.view.number, self.worker) or base
        return self.ask_for_kernels(question, "opt_prompt", "opt_reply", base)

    def _review(self, situation: Situation, variants: list[Proposal]) -> dict[int, Forecast]:
        """What a review expects of each variant, by number; nothing where it is not asked for, or
        where earlier ones showed that it does not pay."""
        wanted = self.shared.settings.review and self.shared.proposer.reads_prompts
        if not (wanted and variants and pays(score(self.view.candidates.values()))):
            return {}
        self.doing("reviewing")
        question = ReviewQuestion(**dict(situation), variants=variants)
        review, _ = self.ask(
            question,
            "review_prompt",
            "review_reply",
            lambda text: read_review(text, len(variants)),
        )
        if review is None:
            return {}
        write_record(self.folder / "review.json", review)
        return {c.variant: Forecast(fails=c.fails, reason=c.reason) for c in review.concerns}

    def _reflect(
        self, situation: Situation, diagnosis: Diagnosis, candidates: list[Candidate]
    ) -> None:
        self.doing("reflecting")
        trials = [self.trial(situation, candidate) for candidate in candidates]
        best = self.best(candidates)
        if best is not None and self.shared.proposer.reads_prompts:
            # Somebody is asked about it, and a model learns from what moved; the playbook does not.
            self.doing(f"profiling {best.name}")
            after = {
                "findings_after": self.shared.findings(best),
                "profile_after": self.shared.profile(best),
            }
            trials = [
                trial.with_values(**after) if trial.candidate == best else trial for trial in trials
            ]
        gained = any(is_win(1, trial.over_parent) for trial in trials if trial.over_parent)
        question = ReflectionQuestion(
            **dict(situation), diagnosis=diagnosis, trials=trials, gained=gained
        )
        self.ask(question, "reflexion_prompt", "reflexion", read_reflection)

    def _results(self, candidates: list[Candidate]) -> None:
        """`kernel.py` and `benchmark_results.json`: this worker's best, where one is verified."""
        best = self.best(candidates)
        if best is not None:
            write_text(self.folder / "kernel.py", self.shared.source(best))
        results = BenchmarkResults(
            round=self.view.number,
            worker=self.assignment.worker,
            parent=self.parent.name,
            parent_time=self.parent.measurement,
            results=[self._result(candidate) for candidate in candidates],
        )
        write_record(self.folder / RESULTS, results)

    def _result(self, candidate: Candidate) -> Result:
        parent, own = self.parent.measurement, candidate.measurement
        ratio = None
        if parent is not None and own is not None and candidate.verdict.correct:
            if parent.visit == own.visit:
                ratio = parent.time_ms / own.time_ms
            else:  # they were timed on two lanes, or the run was stopped in between
                times = comparable_times(self.shared.trace, [self.parent, candidate])
                ratio = times[self.parent.name] / times[candidate.name]
        return Result(
            name=candidate.name,
            outcome=candidate.verdict.outcome.value,
            measurement=own,
            speedup_over_parent=ratio,
        )

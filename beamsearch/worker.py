"""One worker's way through a round: profile, diagnose, propose, judge, reflect."""

from __future__ import annotations

import difflib
import hashlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from beamsearch.errors import Stopped
from beamsearch.executor.jobs import Executor, JudgeJob, ProfileJob, Subject
from beamsearch.kernel import fingerprint
from beamsearch.proposer.prompts import reask, render
from beamsearch.proposer.questions import (
    Diagnosis,
    DiagnosisQuestion,
    Memory,
    ProblemCard,
    Proposer,
    Question,
    Reflection,
    ReflectionQuestion,
    Situation,
    Trial,
    Variant,
    VariantsQuestion,
)
from beamsearch.proposer.replies import (
    UnreadableReply,
    read_diagnosis,
    read_reflection,
    read_variants,
)
from beamsearch.records.call import Call
from beamsearch.records.candidate import Candidate
from beamsearch.records.measurement import Measurement
from beamsearch.records.round import BenchmarkResults, Result
from beamsearch.records.trace import Trace, read_record, recorded, write_record, write_text
from beamsearch.records.verdict import Outcome, Stage, Verdict
from beamsearch.search import Assignment, worker_seed
from beamsearch.settings import Settings
from profiling.findings import find
from profiling.hotspots import annotate
from profiling.profile import Finding, Floor, Profile

if TYPE_CHECKING:
    from beamsearch.display import Observer

T = TypeVar("T")
ATTEMPTS = 2
"""A reply that cannot be read is asked for once more, with what was wrong with it."""


class OncePerKey:
    """Runs a function once for a key, whichever thread comes first; the others get its result."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}
        self._results: dict[str, object] = {}

    def get(self, key: str, make: Callable[[], T]) -> T:
        """The result for a key. What `make` raises is raised, and the next caller tries again."""
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            if key not in self._results:
                self._results[key] = make()
            return self._results[key]  # type: ignore[return-value]


@dataclass(frozen=True)
class Shared:
    """What every worker of a run shares."""

    trace: Trace
    card: ProblemCard
    settings: Settings
    executor: Executor
    proposer: Proposer
    floor: Floor | None
    observer: Observer
    stop: threading.Event
    profiles: OncePerKey = field(default_factory=OncePerKey)
    judgements: OncePerKey = field(default_factory=OncePerKey)

    def check_stop(self) -> None:
        """Raise Stopped where the run is being stopped: called before a result is written."""
        if self.stop.is_set():
            raise Stopped("stopping")

    def source(self, candidate: Candidate) -> str:
        """Source of a candidate that has one."""
        assert candidate.kernel_file is not None
        return (self.trace.folder / candidate.kernel_file).read_text()

    def profile(self, candidate: Candidate) -> Profile:
        """The candidate's profile, taken once and kept."""

        def take() -> Profile:
            job = ProfileJob(subject=Subject(name=candidate.name, source=self.source(candidate)))
            profile = self.executor.run(job)
            self.check_stop()
            return profile

        path = self.trace.profile(candidate.name)
        return self.profiles.get(candidate.name, lambda: recorded(path, Profile, take))

    def findings(self, candidate: Candidate) -> list[Finding]:
        """What the candidate's profile means."""
        time = candidate.measurement.time_ms if candidate.measurement else None
        return find(self.profile(candidate), self.floor, time)


@dataclass(frozen=True)
class RoundView:
    """What a worker may see of the run: completed rounds, nothing of who finished first."""

    number: int
    candidates: Mapping[str, Candidate]
    """Every candidate of completed rounds by name."""
    times: Mapping[str, float]
    """Comparable times of the correct ones."""
    memory: Memory
    seen: Mapping[str, str]
    """Fingerprint -> name of the candidate that had it first."""


class Worker:
    """A worker in a round. `run` leaves its files; each step that is on disk is not run again."""

    def __init__(self, shared: Shared, view: RoundView, assignment: Assignment) -> None:
        self.shared = shared
        self.view = view
        self.assignment = assignment
        self.parent = view.candidates[assignment.parent]
        self.folder = shared.trace.worker(view.number, assignment.worker)

    def run(self) -> None:
        """The whole way. Raises Stopped or BeamsearchError; a bad reply or kernel is a verdict."""
        situation = self._situation()
        diagnosis = self._diagnose(situation)
        variants, problem = self._propose(situation, diagnosis)
        candidates = [self._judge(number, variant) for number, variant in enumerate(variants)]
        if not candidates:
            candidates = [self._no_code(problem)]
        self._reflect(situation, diagnosis, candidates)
        self._results(candidates)
        self._doing("done")

    def give_up(self, reason: str) -> None:
        """End the round here, with the kernels judged so far, where a model gives no answer."""
        judged = [read_record(path, Candidate) for path in sorted(self.folder.glob("r*-v*.json"))]
        self._results(judged or [self._no_code(reason)])

    def _doing(self, what: str) -> None:
        self.shared.check_stop()
        self.shared.observer.worker(self.assignment.worker, what)

    def _situation(self) -> Situation:
        self._doing(f"profiling {self.parent.name}")
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
            floor=self.shared.floor,
            profile=profile,
            findings=self.shared.findings(self.parent),
            annotated_source=annotate(profile, source),
            direction=self.assignment.direction,
            memory=self.view.memory,
        )

    def _diagnose(self, situation: Situation) -> Diagnosis:
        self._doing(f"diagnosing {self.parent.name}: {self.assignment.direction}")
        question = DiagnosisQuestion(**dict(situation))
        diagnosis, problem = self._ask(
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
        write_record(self.folder / "strategy.json", diagnosis)
        return diagnosis

    def _propose(self, situation: Situation, diagnosis: Diagnosis) -> tuple[list[Variant], str]:
        self._doing(f"writing variants of {self.parent.name}: {self.assignment.direction}")
        count = self.shared.settings.variants
        question = VariantsQuestion(
            **dict(situation), diagnosis=diagnosis, variants=count, seen=sorted(self.view.seen)
        )
        variants, problem = self._ask(
            question, "opt_prompt", "opt_reply", lambda text: read_variants(text, count)
        )
        return variants or [], problem

    def _ask(
        self, question: Question, prompt_stem: str, reply_stem: str, read: Callable[[str], T]
    ) -> tuple[T | None, str]:
        """What a reply says, or None and why it cannot be read, after one more attempt."""
        prompt, problem = render(question), ""
        for attempt in range(ATTEMPTS):
            suffix = "" if attempt == 0 else f"_{attempt + 1}"
            text = self._reply(question, prompt, attempt, prompt_stem + suffix, reply_stem + suffix)
            try:
                return read(text), ""
            except UnreadableReply as error:
                problem = str(error)
                prompt = reask(prompt, text, problem)
        return None, problem

    def _reply(
        self, question: Question, prompt: str, attempt: int, prompt_stem: str, reply_stem: str
    ) -> str:
        """The recorded reply, or a new one. The reply's text is written last: it is the mark."""
        reply_file = self.folder / f"{reply_stem}.txt"
        if reply_file.is_file():
            return reply_file.read_text()
        prompt_file = self.folder / f"{prompt_stem}.txt"
        write_text(prompt_file, prompt)
        reply = self.shared.proposer.answer(question, prompt)
        self.shared.check_stop()
        call = Call(
            round=self.view.number,
            worker=self.assignment.worker,
            purpose=question.purpose,
            attempt=attempt,
            prompt_file=self.shared.trace.relative(prompt_file),
            reply_file=self.shared.trace.relative(reply_file),
            prompt_sha256=hashlib.sha256(prompt.encode()).hexdigest(),
            **reply.model_dump(exclude={"text"}),
        )
        write_record(self.folder / "calls" / f"{reply_stem}.json", call)
        write_text(reply_file, reply.text)
        return reply.text

    def _author(self, reply_stem: str) -> str:
        call = self.folder / "calls" / f"{reply_stem}.json"
        return read_record(call, Call).author if call.is_file() else self.shared.proposer.name

    def _name(self, variant: int) -> str:
        return f"r{self.view.number}-w{self.assignment.worker}-v{variant}"

    def _no_code(self, problem: str) -> Candidate:
        verdict = Verdict(outcome=Outcome.NO_CODE, stage=Stage.LOAD, reason=problem)
        candidate = self._candidate(0, "no kernel in the reply", verdict)
        return recorded(self.folder / f"{candidate.name}.json", Candidate, lambda: candidate)

    def _candidate(
        self,
        variant: int,
        description: str,
        verdict: Verdict,
        source: str | None = None,
        measurement: Measurement | None = None,
    ) -> Candidate:
        path = self.folder / f"{self._name(variant)}.py"
        return Candidate(
            name=self._name(variant),
            parent=self.parent.name,
            round=self.view.number,
            worker=self.assignment.worker,
            direction=self.assignment.direction,
            description=description,
            author=self._author("opt_reply"),
            kernel_file=self.shared.trace.relative(path) if source is not None else None,
            fingerprint=source_fingerprint(source) if source is not None else None,
            verdict=verdict,
            measurement=measurement,
        )

    def _judge(self, number: int, variant: Variant) -> Candidate:
        name = self._name(number)
        self._doing(f"judging {name}: {variant.description}")
        path = self.folder / f"{name}.py"

        def decide() -> Candidate:
            write_text(path, variant.source)
            print_ = source_fingerprint(variant.source)
            before = self.view.seen.get(print_) if print_ else None
            if before is not None:
                verdict = Verdict(
                    outcome=Outcome.DUPLICATE,
                    stage=Stage.LOAD,
                    reason=f"the same kernel as {before}; it was not judged again",
                )
                return self._candidate(number, variant.description, verdict, variant.source)
            job = JudgeJob(subject=Subject(name=name, source=variant.source))
            judged = self.shared.judgements.get(
                print_ or name, lambda: self.shared.executor.run(job)
            )
            self.shared.check_stop()
            return self._candidate(
                number, variant.description, judged.verdict, variant.source, judged.measurement
            )

        candidate = recorded(self.folder / f"{name}.json", Candidate, decide)
        self.shared.observer.candidate(candidate)
        return candidate

    def _reflect(
        self, situation: Situation, diagnosis: Diagnosis, candidates: list[Candidate]
    ) -> None:
        self._doing("reflecting")
        trials = []
        for candidate in candidates:
            source = self.shared.source(candidate) if candidate.kernel_file else ""
            trials.append(Trial(candidate=candidate, diff=_diff(situation, candidate, source)))
        question = ReflectionQuestion(**dict(situation), diagnosis=diagnosis, trials=trials)
        self._ask(question, "reflexion_prompt", "reflexion", read_reflection)

    def _results(self, candidates: list[Candidate]) -> None:
        """`kernel.py` and `benchmark_results.json`: this worker's best, where one is verified."""
        correct = [c for c in candidates if c.verdict.correct]
        if correct:
            best = min(correct, key=lambda c: c.time_ms)
            write_text(self.folder / "kernel.py", self.shared.source(best))
        results = BenchmarkResults(
            round=self.view.number,
            worker=self.assignment.worker,
            parent=self.parent.name,
            parent_time=self.parent.measurement,
            results=[self._result(candidate) for candidate in candidates],
        )
        write_record(self.folder / "benchmark_results.json", results)

    def _result(self, candidate: Candidate) -> Result:
        parent, own = self.parent.measurement, candidate.measurement
        comparable = parent is not None and own is not None and parent.visit == own.visit
        return Result(
            name=candidate.name,
            outcome=candidate.verdict.outcome.value,
            measurement=own,
            speedup_over_parent=parent.time_ms / own.time_ms
            if comparable and parent and own
            else None,
        )


def reflections(trace: Trace, number: int) -> list[Reflection]:
    """What the workers of a completed round wrote that can be read, by worker."""
    found = []
    workers = len(list(trace.round(number).glob("workers/w*")))
    for worker in range(workers):
        for stem in ("reflexion", "reflexion_2"):
            path = trace.worker(number, worker) / f"{stem}.txt"
            if not path.is_file():
                continue
            try:
                found.append(read_reflection(path.read_text()))
                break
            except UnreadableReply:
                continue  # the next attempt, where there was one, was asked for because of this
    return found


def source_fingerprint(source: str) -> str | None:
    """Fingerprint of a source, or None where it does not parse (the judge says why)."""
    try:
        return fingerprint(source)
    except (SyntaxError, ValueError):
        return None


def _diff(situation: Situation, candidate: Candidate, source: str) -> str:
    lines = difflib.unified_diff(
        situation.parent_source.splitlines(),
        source.splitlines(),
        situation.parent,
        candidate.name,
        lineterm="",
    )
    return "\n".join(lines)

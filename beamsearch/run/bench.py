"""What one worker of a round works with: it asks, judges, compares, and says what it does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from beamsearch.problem.kernel import unified_diff
from beamsearch.proposer.prompts.render import reask, render
from beamsearch.proposer.questions import Question, Situation, Trial
from beamsearch.proposer.replies import UnreadableReply, read_variants
from beamsearch.records.call import Call
from beamsearch.records.candidate import Candidate
from beamsearch.records.proposal import Proposal
from beamsearch.records.ratios import comparable_times
from beamsearch.records.trace import read_record
from beamsearch.run.ask import Answers
from beamsearch.run.candidates import Candidates, Made
from beamsearch.run.context import RoundView, Shared
from beamsearch.search.directions import Assignment
from beamsearch.search.pairs import is_win

T = TypeVar("T")
ATTEMPTS = 2
"""A reply that cannot be read is asked for once more, with what was wrong with it."""


class Bench:
    """A worker's place in a round. Each step whose result is on disk is not run again."""

    def __init__(self, shared: Shared, view: RoundView, assignment: Assignment) -> None:
        self.shared = shared
        self.view = view
        self.assignment = assignment
        self.parent = view.candidates[assignment.parent]
        self.folder = shared.trace.worker(view.number, assignment.worker)
        self.answers = Answers(shared.trace, self.folder, shared.proposer, shared.stop)
        self.memory = view.memory
        own = view.times.get(self.parent.name)
        if self.parent.is_first and own and is_win(min(view.times.values()), own):
            # It starts afresh: who sees the best kernels in full writes one of them again.
            self.memory = view.memory.with_values(best=[])
        shown = {kernel.name: kernel.source for kernel in self.memory.best}
        shown[self.parent.name] = shared.source(self.parent)
        self.candidates = Candidates(shared, view.number, assignment, self.folder, shown)

    @property
    def worker(self) -> int:
        return self.assignment.worker

    def doing(self, what: str) -> None:
        self.shared.stop.check()
        self.shared.observer.worker(self.worker, what, self.view.number)

    def ask(
        self, question: Question, prompt_stem: str, reply_stem: str, read: Callable[[str], T]
    ) -> tuple[T | None, str]:
        """What a reply says, or None and why it cannot be read, after one more attempt."""
        prompt, problem = render(question), ""
        for attempt in range(ATTEMPTS):
            with self.shared.executor.usage.waiting("model"):
                text = self.answers.get(question, prompt, attempt, (prompt_stem, reply_stem))
            try:
                return read(text), ""
            except UnreadableReply as error:
                problem = str(error)
                prompt = reask(prompt, text, problem)
        if question.purpose not in ("variants", "repair"):  # a candidate's line tells of those
            worker = f"r{self.view.number}-w{self.assignment.worker}"
            told = f"{worker}: its {question.purpose} could not be read: {problem}"
            self.shared.observer.note(told)
        return None, problem

    def ask_for_kernels(
        self, question: Question, prompt_stem: str, reply_stem: str, base: str
    ) -> tuple[list[Proposal], str]:
        """The kernels of a reply, patches being of `base`; none, and why it cannot be read."""
        found, problem = self.ask(
            question, prompt_stem, reply_stem, lambda text: read_variants(text, base)
        )
        author = self.author(reply_stem)
        return [proposal.with_values(author=author) for proposal in found or []], problem

    def trial(self, situation: Situation, candidate: Candidate) -> Trial:
        """A candidate with its diff against the kernel it was made from, or whole."""
        source = self.shared.source(candidate) if candidate.kernel_file else ""
        name, before = situation.parent, situation.parent_source
        origin = candidate.repair_of or candidate.tuned_from
        file = self.folder / f"{origin}.py"
        if origin is not None and file.is_file():
            name, before = origin, file.read_text()
        diff = unified_diff(before, source, name, candidate.name) if source else ""
        whole = len(diff) > len(source)
        times = comparable_times(self.shared.trace, [self.parent, candidate])
        own = times.get(candidate.name)
        ratio = times[self.parent.name] / own if own else None
        shown = source if whole else diff
        return Trial(candidate=candidate, diff=shown, whole=whole, over_parent=ratio)

    def author(self, reply_stem: str) -> str:
        call = self.folder / "calls" / f"{reply_stem}.json"
        return read_record(call, Call).author if call.is_file() else self.shared.proposer.name

    def judge(self, made: Made, seen: Mapping[str, str]) -> Candidate:
        self.doing(f"judging {made.name}: {made.proposal.description}")
        return self.candidates.judge(made, seen)

    def best(self, candidates: list[Candidate]) -> Candidate | None:
        """The fastest correct one, by ratios where a run was stopped in between."""
        times = comparable_times(self.shared.trace, candidates)
        return min(
            (c for c in candidates if c.name in times), key=lambda c: times[c.name], default=None
        )

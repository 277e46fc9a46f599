"""Repairs of the candidates of one worker that failed, each shown its own error."""

from __future__ import annotations

from collections.abc import Iterable

from beamsearch.errors import NeverAnswered, NoAnswer, Stopped, Unanswered
from beamsearch.proposer.questions import Diagnosis, RepairQuestion, Situation
from beamsearch.records.candidate import Candidate
from beamsearch.records.proposal import Proposal
from beamsearch.run.bench import Bench
from beamsearch.run.candidates import NOT_REPAIRED, Made, names_of, source_fingerprint


class Line:
    """A variant and the repairs that follow from it."""

    def __init__(self, made: Made, candidate: Candidate) -> None:
        self.made = [made]
        """Those that had code."""
        self.candidates = [candidate]

    @property
    def last(self) -> Candidate:
        """The candidate whose verdict counts: the last that was made."""
        return self.candidates[-1]

    @property
    def source(self) -> str | None:
        """The newest source; None where every one was a patch that did not apply."""
        sources = [m.proposal.source for m in self.made if m.proposal.source is not None]
        return sources[-1] if sources else None


class Repairs:
    """The repairs of a worker's variants."""

    def __init__(self, bench: Bench, situation: Situation, diagnosis: Diagnosis) -> None:
        self.bench = bench
        self.situation = situation
        self.diagnosis = diagnosis
        self.seen = dict(bench.view.seen)

    def run(self, tried: Iterable[tuple[Made, Candidate]]) -> list[Candidate]:
        """Every repair. All that failed are repaired once before any is repaired again, and one
        whose reply is not there yet holds none of the others up: so replies that take hours are
        waited for together. What stopped one is raised when the others had their turn: first of
        all that one is not answered yet, for then the round goes on; then a limit; then that one
        gets no answer."""
        lines = [Line(made, candidate) for made, candidate in tried]
        self.seen |= names_of(line.last for line in lines) | self.seen
        for number in range(1, self.bench.shared.settings.repairs + 1):
            errors: list[Stopped | NoAnswer] = []
            for line in lines:
                try:
                    if line.last.verdict.outcome not in NOT_REPAIRED:
                        self._repair(line, number)
                except NeverAnswered:
                    continue  # a replay, of a run in which this one did not fail
                except (Stopped, NoAnswer) as error:
                    errors.append(error)
            for kind in (Unanswered, Stopped, NoAnswer):
                if found := [error for error in errors if isinstance(error, kind)]:
                    raise found[0]
        return [candidate for line in lines for candidate in line.candidates[1:]]

    def _repair(self, line: Line, number: int) -> None:
        """One repair of a line's last candidate: asked for, judged, and added to the line."""
        bench, failed = self.bench, line.last
        name = f"{line.made[0].name}-f{number}"
        bench.doing(f"repairing {failed.name}")
        base = line.source or self.situation.parent_source
        question = RepairQuestion(
            **dict(self.situation),
            diagnosis=self.diagnosis,
            failed=failed,
            failed_source=base,
            patch=line.made[-1].proposal.patch,
            earlier=[bench.trial(self.situation, c) for c in line.candidates[:-1]],
            name=name,
        )
        stems = f"{name}_prompt", f"{name}_reply"
        found, problem = bench.ask_for_kernels(question, *stems, base)
        if not found:
            author = bench.author(stems[1])
            repaired = bench.candidates.no_code(name, author, problem, repair_of=failed.name)
        else:
            made = Made(name, self._new(found, line), repair_of=failed.name)
            # Of other lines' repairs nothing is known: which came first would depend on replies.
            repaired = bench.judge(made, names_of(line.candidates) | self.seen)
            line.made.append(made)
        line.candidates.append(repaired)

    def _new(self, found: list[Proposal], line: Line) -> Proposal:
        """The first kernel of a reply that is none judged before: some quote what they repair."""
        known = names_of(line.candidates) | self.seen
        for variant in found:
            if variant.source is None or source_fingerprint(variant.source) not in known:
                return variant
        return found[0]

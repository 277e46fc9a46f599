"""From a kernel of a reply to a judged candidate on disk."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from beamsearch.errors import BeamsearchError
from beamsearch.problem.kernel import fingerprint, shared_lines
from beamsearch.records.candidate import Candidate, Forecast
from beamsearch.records.job import JudgeJob, Judgement, Subject
from beamsearch.records.proposal import Proposal
from beamsearch.records.trace import read_record, recorded, write_text
from beamsearch.records.verdict import Outcome, Stage, Verdict, same_code
from beamsearch.search.directions import Assignment

if TYPE_CHECKING:
    from beamsearch.run.context import Shared

NOT_REPAIRED = (Outcome.CORRECT, Outcome.NO_CODE, Outcome.DUPLICATE)
"""Nothing is wrong with it, there is nothing to repair, or its twin was repaired before."""
LEAST_SHARE = 0.25
"""Kernels of one problem that were written apart share up to 0.21 of their lines (imports, the
entry's head), the median child and its parent 0.7: the runs in artifacts, of model and playbook."""
LEAST_FREE = 1 << 20
"""Bytes that a disk has left, at least, for a failure to be the kernel's own."""


@dataclass(frozen=True)
class Made:
    """A proposal on its way to a verdict."""

    name: str
    proposal: Proposal
    repair_of: str | None = None
    tuned_from: str | None = None
    forecast: Forecast | None = None
    set_aside: bool = False
    """Whether the forecast is believed: then it is not judged."""


@dataclass(frozen=True)
class Candidates:
    """Judges what one worker made, each kernel once."""

    shared: Shared
    round: int
    assignment: Assignment | None
    """None for a person's kernels."""
    folder: Path
    shown: Mapping[str, str] = field(default_factory=dict)
    """Name -> source of the kernels that the worker's prompts show."""

    def no_code(
        self, name: str, author: str, reason: str, repair_of: str | None = None
    ) -> Candidate:
        """The verdict on a reply that holds no kernel."""
        verdict = Verdict(outcome=Outcome.NO_CODE, stage=Stage.LOAD, reason=reason)
        proposal = Proposal(description="no kernel in the reply", source=None, author=author)
        made = Made(name, proposal, repair_of)
        return self._recorded(made, lambda: Judgement(verdict=verdict))

    def judge(self, made: Made, seen: Mapping[str, str]) -> Candidate:
        """The judged candidate. `seen`: fingerprints of sources and of compiled code judged before,
        with their names (`names_of`); one of them is a duplicate and not judged again."""
        source = made.proposal.source

        def decide() -> Judgement:
            if source is None:
                return _refused(Outcome.INVALID, Stage.LOAD, made.proposal.fault)
            write_text(self.folder / f"{made.name}.py", source)
            print_ = source_fingerprint(source)
            before = seen.get(print_) if print_ else None
            if before is not None:
                reason = f"the same kernel as {before}; it was not judged again"
                return _refused(Outcome.DUPLICATE, Stage.LOAD, reason)
            if made.set_aside and made.forecast is not None:
                reason = f"a review expects it to fail: {made.forecast.reason}"
                return _refused(Outcome.SET_ASIDE, Stage.REVIEW, reason)
            subject = Subject(name=made.name, source=source)
            judged = self._judged_once(subject, print_ or made.name, seen)
            self.shared.stop.check()
            return judged

        return self._recorded(made, decide)

    def unjudged(self, made: Iterable[Made], seen: Mapping[str, str]) -> list[Subject]:
        """What of it will be judged, as far as that is known from the sources."""
        return [
            Subject(name=item.name, source=item.proposal.source)
            for item in made
            if item.proposal.source is not None
            and not item.set_aside
            and source_fingerprint(item.proposal.source) not in seen
            and not (self.folder / f"{item.name}.json").is_file()
        ]

    def _judged_once(self, subject: Subject, key: str, seen: Mapping[str, str]) -> Judgement:
        """The judgement that equal kernels of all workers share, whoever is first.

        What a worker itself has seen is for this worker alone: whether the code is a twin's is
        decided for each, so that it does not depend on who was first.
        """

        def run() -> Judgement:
            job = JudgeJob(round=self.round, subject=subject, seen=dict(seen))
            return self._judged_before(key) or self.shared.executor.run(job)

        judged = self.shared.judgements.get(key, run)
        code = judged.verdict.code_fingerprint or ""
        if judged.verdict.outcome is Outcome.DUPLICATE and code not in seen:
            judged = self.shared.judgements.get(f"{key} itself", run)
        if code not in seen:
            return judged
        twin = _refused(Outcome.DUPLICATE, Stage.COMPILE, same_code(seen[code])).verdict
        return Judgement(verdict=twin.with_values(code_fingerprint=code))

    def _judged_before(self, key: str) -> Judgement | None:
        """The judgement of an equal kernel of this round, from before the run was stopped."""
        for path in self.shared.trace.judged(self.round):
            candidate = read_record(path, Candidate)
            elsewhere = candidate.verdict.outcome in (Outcome.DUPLICATE, Outcome.SET_ASIDE)
            if candidate.fingerprint == key and not elsewhere:
                return Judgement(verdict=candidate.verdict, measurement=candidate.measurement)
        return None

    def _recorded(self, made: Made, decide: Callable[[], Judgement]) -> Candidate:
        source = made.proposal.source
        path = self.folder / f"{made.name}.py"
        own = self.assignment

        def make() -> Candidate:
            judged = decide()
            if not judged.verdict.correct:
                _check_disk(self.folder)
            return Candidate(
                name=made.name,
                parent=own.parent if own else None,
                repair_of=made.repair_of,
                tuned_from=made.tuned_from,
                **self._built_from(made),
                round=self.round,
                worker=own.worker if own else None,
                direction=own.direction if own else None,
                description=made.proposal.description,
                author=made.proposal.author,
                kernel_file=self.shared.trace.relative(path) if source is not None else None,
                fingerprint=source_fingerprint(source),
                verdict=judged.verdict,
                measurement=judged.measurement,
                forecast=made.forecast,
            )

        candidate = recorded(self.folder / f"{made.name}.json", Candidate, make)
        self.shared.observer.candidate(candidate)
        return candidate

    def _built_from(self, made: Made) -> dict[str, Any]:
        """Which of the kernels its author was shown it has most lines of."""
        source = made.proposal.source
        origin = made.repair_of or made.tuned_from
        file = self.folder / f"{origin}.py"
        shown = dict(self.shown) | ({origin: file.read_text()} if origin and file.is_file() else {})
        if source is None or not shown:
            return {}
        shares = {name: shared_lines(text, source) for name, text in shown.items()}
        nearest = max(shares, key=shares.__getitem__)
        share = round(shares[nearest], 3)
        return {"built_from": nearest, "built_share": share} if share >= LEAST_SHARE else {}


def _check_disk(folder: Path) -> None:
    """Raise BeamsearchError where a disk is full that a kernel needs: what failed then may have
    failed for that."""
    for place in (folder, Path(tempfile.gettempdir())):
        if shutil.disk_usage(place).free < LEAST_FREE:
            raise BeamsearchError(
                f"the disk of {place} is full, so that kernels cannot be judged; make room, and "
                "give the same command again"
            )


def names_of(candidates: Iterable[Candidate]) -> dict[str, str]:
    """Fingerprint, of the source or the compiled code -> the first candidate that had it. What was
    set aside is left out: nobody has judged it, and its author may insist on it."""
    names: dict[str, str] = {}
    for c in candidates:
        if c.verdict.outcome is not Outcome.SET_ASIDE:
            for print_ in (c.fingerprint, c.verdict.code_fingerprint):
                if print_ is not None:
                    names.setdefault(print_, c.name)
    return names


def source_fingerprint(source: str | None) -> str | None:
    """Fingerprint of a source, or None where there is none or it does not parse (the judge says
    why)."""
    try:
        return None if source is None else fingerprint(source)
    except (SyntaxError, ValueError):
        return None


def _refused(outcome: Outcome, stage: Stage, reason: str) -> Judgement:
    return Judgement(verdict=Verdict(outcome=outcome, stage=stage, reason=reason))

"""What the workers of a run share, and what each may see of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from beamsearch.executor.executor import Executor
from beamsearch.judge.once import OncePerKey
from beamsearch.proposer.questions import Memory, ProblemCard, Proposer
from beamsearch.records.candidate import Candidate
from beamsearch.records.job import ProfileJob, Subject
from beamsearch.records.trace import Trace, recorded
from beamsearch.run.stop import StopToken
from beamsearch.settings import Settings
from kernel_profiling.findings.findings import find
from kernel_profiling.profile import Finding, Floor, Profile

if TYPE_CHECKING:
    from beamsearch.run.observer import Observer


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
    stop: StopToken
    profiles: OncePerKey = field(default_factory=OncePerKey)
    judgements: OncePerKey = field(default_factory=OncePerKey)

    def source(self, candidate: Candidate) -> str:
        """Source of a candidate that has one."""
        return self.trace.kernel_source(candidate)

    def profile(self, candidate: Candidate) -> Profile:
        """The candidate's profile, taken once and kept."""

        def take() -> Profile:
            subject = Subject(name=candidate.name, source=self.source(candidate))
            profile = self.executor.run(ProfileJob(round=candidate.round, subject=subject))
            self.stop.check()
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
    """Fingerprint, of source or compiled code -> name of the candidate that had it first."""
    hints: list[str] = field(default_factory=list)
    """What people advised before the round began."""

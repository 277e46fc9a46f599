"""The winner's line: what each step from the input kernel changed and gained."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from beamsearch.records.candidate import Candidate
from beamsearch.report.counters import changed, finding_measured, is_unchanged
from beamsearch.report.numbers import configuration
from beamsearch.report.run_data import INPUT, Change, RunData
from kernel_profiling.profile import Finding, Profile

CLEAR = 1.1
"""The least bound of a finding by whose coming or going a kernel is told from another."""


@dataclass(frozen=True)
class Step:
    """One kernel of the line, against the one that it was made from."""

    candidate: Candidate
    origin: Candidate | None
    change: Change | None
    cause: str
    """The diagnosis that its worker began from."""
    moved: list[str]
    """What differs clearly in their profiles."""
    gone: list[str]
    """Findings of the one before that its own profile no longer lists."""
    come: list[str]
    reflection: str
    built_from: Candidate | None
    """The kernel that most of its lines are those of, where that is not the one before."""


def lineage(run: RunData) -> list[Step]:
    """From the input kernel to the winner."""
    return [_step(run, candidate) for candidate in run.lineage(run.winner)]


def _step(run: RunData, candidate: Candidate) -> Step:
    origin = run.candidates.get(run.origin(candidate) or "")
    profiles = run.profile(origin.name) if origin else None, run.profile(candidate.name)
    gone: list[str] = []
    come: list[str] = []
    if origin is not None and all(profiles):
        before, after = run.findings(origin), run.findings(candidate)
        gone, come = only_in(before, after, *profiles), only_in(after, before, *profiles)
    built = run.candidates.get(candidate.built_from or "")
    return Step(
        candidate=candidate,
        origin=origin,
        change=run.against(candidate, origin.name if origin else None),
        cause=run.plan(candidate)["cause"],
        moved=changed(*profiles, run.about),
        gone=gone,
        come=come,
        reflection=run.reflection(candidate),
        built_from=None if built is origin else built,
    )


def in_all(run: RunData) -> list[str]:
    """What differs clearly between the input kernel and the winner, where more than one step lies
    between them."""
    if len(run.lineage(run.winner)) <= 2:
        return []
    told = changed(run.profile(INPUT), run.profile(run.winner.name), run.about)
    chosen = [configuration(run.candidates[n].measurement) for n in (INPUT, run.winner.name)]
    return told + [f"ran with{chosen[0]}, now{chosen[1]}".replace("  ", " ")] * all(chosen)


def only_in(
    some: Sequence[Finding],
    others: Sequence[Finding],
    before: Profile | None = None,
    after: Profile | None = None,
) -> list[str]:
    """Findings that the others do not have, with their bounds, and what they are measured by before
    and after. Smaller ones than `CLEAR` come and go with the threshold that lists them, so they say
    nothing of a change."""
    known = {kind for finding in others for kind in (finding.kind, *finding.seen_as)}
    told = []
    for finding in some:
        if finding.kind not in known and finding.gain_bound >= CLEAR:
            if is_unchanged(finding.kind, before, after):
                continue  # what else limits the kernel changed, and with it the bound
            measured = finding_measured(finding.kind, before, after)
            bound = f"up to {finding.gain_bound:.2f}x"
            told.append(f"{finding.title} ({bound}{f'; {measured}' if measured else ''})")
    return told

"""Which way each worker goes from its parent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from beamsearch.records.candidate import Candidate, Direction
from beamsearch.records.verdict import Outcome
from beamsearch.search.plan import Assignment, Origin, Plan
from kernel_profiling.profile import Finding, FindingKind

WITHOUT_FINDINGS = (
    FindingKind.ISSUE_BOUND,
    FindingKind.LATENCY,
    FindingKind.INTEGER_OVERHEAD,
    FindingKind.EXCESS_TRAFFIC,
)
"""Directions for a parent whose profile names none: the four commonest in memory-bound kernels."""

NOT_BUILT = (
    *(Outcome.INVALID, Outcome.COMPILE_ERROR),
    *(Outcome.WRONG, Outcome.UNPROVEN, Outcome.CRASHED),
)
"""Failures of the code and not of the plan. A slow kernel has shown what its plan is worth, and so
has one that only cheats, hangs, or is a kernel seen before."""


def deal(
    parents: Sequence[str],
    findings: Mapping[str, Sequence[Finding]],
    history: Sequence[Candidate],
) -> Plan:
    """A direction for each worker, whose parents are given in order.

    The next direction of a parent is the finding that it was given least often so far, ties by the
    finding's rank: one that failed waits until the others had their turn. A finding that comes back
    brings its next plan; where the code of the last one failed and nothing of it was correct, that
    plan once more. So no direction is given twice.
    """
    tried = {name: _Tried.of(name, history) for name in dict.fromkeys(parents)}
    assignments: list[Assignment] = []
    for worker, parent in enumerate(parents):
        kinds = list(dict.fromkeys(f.kind for f in findings[parent]))
        kinds = [kind for kind in kinds if kind is not FindingKind.AT_FLOOR]
        direction, origin = tried[parent].give(kinds or list(WITHOUT_FINDINGS))
        assignments.append(
            Assignment(
                worker=worker,
                parent=parent,
                direction=direction,
                share=list(parents[:worker]).count(parent),
                shares=list(parents).count(parent),
                plan_of=origin,
            )
        )
    return Plan(assignments=assignments)


@dataclass
class _Tried:
    """What a parent was given so far, and what came of it."""

    turns: dict[str, int] = field(default_factory=dict)
    """Finding -> how often it was given."""
    plans: dict[str, int] = field(default_factory=dict)
    """Finding -> how many plans were made for it."""
    unbuilt: dict[str, tuple[int, Origin]] = field(default_factory=dict)
    """Finding -> its last plan and who had it, where its code failed for the first time."""

    @classmethod
    def of(cls, parent: str, history: Sequence[Candidate]) -> _Tried:
        tried = cls()
        given: dict[tuple[int, int], list[Candidate]] = {}
        for c in history:
            if c.parent == parent and c.direction is not None and c.worker is not None:
                given.setdefault((c.round, c.worker), []).append(c)
        for (number, worker), made in sorted(given.items()):
            direction = made[0].direction
            assert direction is not None
            tried._count(direction)
            outcomes = [c.verdict.outcome for c in made]
            failed = Outcome.CORRECT not in outcomes and any(o in NOT_BUILT for o in outcomes)
            if failed and not direction.again:
                origin = Origin(round=number, worker=worker)
                tried.unbuilt[direction.finding] = direction.plan, origin
        return tried

    def give(self, kinds: Sequence[FindingKind]) -> tuple[Direction, Origin | None]:
        """The next direction, counted as given, and whose plan it is where it is given again."""
        kind = min(kinds, key=lambda k: (self.turns.get(k, 0), kinds.index(k))).value
        plan, origin = self.unbuilt.get(kind, (self.plans.get(kind, 0), None))
        direction = Direction(finding=kind, plan=plan, again=origin is not None)
        self._count(direction)
        return direction, origin

    def _count(self, direction: Direction) -> None:
        finding = direction.finding
        self.turns[finding] = self.turns.get(finding, 0) + 1
        self.plans[finding] = max(self.plans.get(finding, 0), direction.plan + 1)
        self.unbuilt.pop(finding, None)

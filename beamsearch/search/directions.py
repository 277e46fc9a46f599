"""What the workers of a round are sent to do: from which parent, and which way."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence

from beamsearch.records.candidate import OPEN, Candidate, Direction
from beamsearch.records.proposal import Proposal
from beamsearch.records.record import Record
from beamsearch.records.steering import Hint
from beamsearch.records.verdict import Outcome
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


class Origin(Record):
    """The worker of an earlier round whose plan is carried out again."""

    round: int
    worker: int


class Assignment(Record):
    """What one worker does in a round."""

    worker: int
    parent: str
    direction: Direction
    share: int = 0
    """Which of its parent's workers in this round it is, and how many these are: so that a thinker
    with one list of ideas for a kernel gives each worker others."""
    shares: int = 1
    plan_of: Origin | None = None
    """Whose plan it is, where the direction is given again; None: it makes its own."""
    others: list[str] = []
    """What the other workers of the round are sent to do."""


class Plan(Record):
    """`plan.json` of a round: who does what, and what a person gave for it."""

    assignments: list[Assignment]
    hints: list[Hint] = []
    """The advice that all its prompts see."""
    kernels: list[Proposal] = []
    """A person's, to be judged in it."""


def worker_seed(seed: int, round_number: int, worker: int) -> int:
    """The worker's only source of chance, the same wherever and whenever it runs."""
    digest = hashlib.sha256(f"{seed}/{round_number}/{worker}".encode()).digest()
    return int.from_bytes(digest[:4], "big")


def deal(
    parents: Sequence[str],
    findings: Mapping[str, Sequence[Finding]],
    history: Sequence[Candidate],
    *,
    free: bool = False,
    beside: Sequence[Assignment] = (),
) -> Plan:
    """A direction for each worker, whose parents are given in order; with `free` the last of
    several has an open one. `beside`: what workers do of whom the history cannot tell yet.

    The next direction of a parent is the finding that it was given least often so far, ties by the
    finding's rank: one that failed waits until the others had their turn. A finding that comes back
    brings its next plan; where the code of the last one failed and nothing of it was correct, that
    plan once more. So no direction is given twice.
    """
    tried = {name: _Tried(name, history) for name in dict.fromkeys(parents)}
    for given_beside in beside:
        if given_beside.parent in tried:
            tried[given_beside.parent].count(given_beside.direction)
    assignments: list[Assignment] = []
    for worker, parent in enumerate(parents):
        kinds = list(dict.fromkeys(f.kind for f in findings[parent]))
        kinds = [kind for kind in kinds if kind is not FindingKind.AT_FLOOR]
        given: Sequence[str] = kinds or WITHOUT_FINDINGS
        if free and 0 < worker == len(parents) - 1:
            given = [OPEN]
        direction, origin = tried[parent].give(given)
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
    told = [f"{a.parent}: {a.direction}" for a in assignments]
    return Plan(
        assignments=[
            a.with_values(others=told[:number] + told[number + 1 :])
            for number, a in enumerate(assignments)
        ]
    )


class _Tried:
    """What a parent was given so far, and what came of it."""

    def __init__(self, parent: str, history: Sequence[Candidate]) -> None:
        self.turns: Counter[str] = Counter()
        """Finding -> how often it was given."""
        self.plans: Counter[str] = Counter()
        """Finding -> how many plans were made for it."""
        self.unbuilt: dict[str, tuple[int, Origin]] = {}
        """Finding -> its last plan and who had it, where its code failed for the first time."""
        given: dict[tuple[int, int], list[Candidate]] = {}
        for c in history:
            if c.parent == parent and c.direction is not None and c.worker is not None:
                given.setdefault((c.round, c.worker), []).append(c)
        for (number, worker), made in sorted(given.items()):
            direction = made[0].direction
            assert direction is not None
            self.count(direction)
            outcomes = [c.verdict.outcome for c in made]
            failed = Outcome.CORRECT not in outcomes and any(o in NOT_BUILT for o in outcomes)
            if failed and not direction.again:
                origin = Origin(round=number, worker=worker)
                self.unbuilt[direction.finding] = direction.plan, origin

    def give(self, kinds: Sequence[str]) -> tuple[Direction, Origin | None]:
        """The next direction, counted as given, and whose plan it is where it is given again."""
        kind = str(min(kinds, key=lambda k: (self.turns[k], kinds.index(k))))
        plan, origin = self.unbuilt.get(kind, (self.plans[kind], None))
        direction = Direction(finding=kind, plan=plan, again=origin is not None)
        self.count(direction)
        return direction, origin

    def count(self, direction: Direction) -> None:
        """Note a direction that was given."""
        finding = direction.finding
        self.turns[finding] += 1
        self.plans[finding] = max(self.plans[finding], direction.plan + 1)
        self.unbuilt.pop(finding, None)

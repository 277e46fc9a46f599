"""The beam: parents, directions, survivors, stopping. Pure functions."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence

from beamsearch.records.candidate import Candidate, Direction
from beamsearch.records.record import Record
from beamsearch.records.round import RoundRecord
from beamsearch.records.verdict import Outcome
from profiling.profile import Finding, FindingKind

NOISE = 0.01
"""Relative difference below which two times are a tie: ten timings of one kernel on an H200 spread
by up to 1% (median against median)."""

FLOOR_MARGIN = 1.05
"""A confirmed time within 5% of the floor ends a run: what is left is within the error of the
floor's own measured ceilings."""

WITHOUT_FINDINGS = (
    FindingKind.ISSUE_BOUND,
    FindingKind.LATENCY,
    FindingKind.INTEGER_OVERHEAD,
    FindingKind.EXCESS_TRAFFIC,
)
"""Directions for a parent whose profile names none: the four commonest in memory-bound kernels."""


class Assignment(Record):
    """What one worker does in a round."""

    worker: int
    parent: str
    direction: Direction


class Plan(Record):
    """`plan.json` of a round: who does what."""

    assignments: list[Assignment]


def worker_seed(seed: int, round_number: int, worker: int) -> int:
    """The worker's only source of chance, the same wherever and whenever it runs."""
    digest = hashlib.sha256(f"{seed}/{round_number}/{worker}".encode()).digest()
    return int.from_bytes(digest[:4], "big")


def deal(
    beam: Sequence[str],
    findings: Mapping[str, Sequence[Finding]],
    workers: int,
    history: Sequence[Candidate],
) -> Plan:
    """Deal directions over the parents in turn.

    A parent's next direction is the finding it was given least often so far, ties by the finding's
    rank; one given before comes back as the next plan for it, so that none is given twice.
    """
    given: Counter[tuple[str, str]] = Counter()
    dealt = {(c.round, c.worker, c.parent, c.direction) for c in history if c.direction}
    for _, _, parent, direction in dealt:
        if parent is not None and direction is not None:
            given[parent, direction.finding] += 1
    assignments = []
    for worker in range(workers):
        parent = beam[worker % len(beam)]
        kinds = list(dict.fromkeys(f.kind for f in findings[parent]))
        kinds = [kind for kind in kinds if kind is not FindingKind.AT_FLOOR]
        kinds = kinds or list(WITHOUT_FINDINGS)
        kind = min(kinds, key=lambda k: (given[parent, k.value], kinds.index(k)))
        plan = given[parent, kind.value]
        given[parent, kind.value] += 1
        direction = Direction(finding=kind.value, plan=plan)
        assignments.append(Assignment(worker=worker, parent=parent, direction=direction))
    return Plan(assignments=assignments)


def survivors(pool: Sequence[Candidate], times: Mapping[str, float], k: int) -> list[Candidate]:
    """The k fastest distinct correct kernels, fastest first; ties go to the earlier name in `pool`.

    `times` are comparable (one visit, or ratios to its anchor). Kernels with the same source or the
    same compiled code are one kernel.
    """
    kept: list[Candidate] = []
    sources: set[str] = set()
    codes: set[str] = set()
    correct = [c for c in pool if c.verdict.correct and c.name in times]
    for candidate in sorted(correct, key=lambda c: times[c.name]):
        code = candidate.verdict.code_fingerprint
        if candidate.fingerprint in sources or (code is not None and code in codes):
            continue
        kept.append(candidate)
        sources.add(candidate.fingerprint or candidate.name)
        if code is not None:
            codes.add(code)
    return kept[:k]


def is_win(time: float, best_time: float) -> bool:
    """Whether a time beats the best by more than the noise."""
    return time < best_time * (1 - NOISE)


def stop_reason(
    rounds: Sequence[RoundRecord],
    asked_rounds: int,
    *,
    multiple_of_floor: float | None = None,
    out_of_time: bool = False,
) -> str | None:
    """Why the run ends here, or None. `multiple_of_floor` is of a measured, confirmed time."""
    done = len(rounds) - 1
    if multiple_of_floor is not None and multiple_of_floor <= FLOOR_MARGIN:
        return f"within 5% of the floor ({multiple_of_floor:.2f} times)"
    if done >= asked_rounds:
        return f"all {asked_rounds} rounds done"
    if out_of_time:
        return "the time limit is reached"
    fruitless = (Outcome.NO_CODE, Outcome.DUPLICATE)
    last = rounds[-1].candidates
    if done > 0 and all(c.verdict.outcome in fruitless for c in last):
        return "nothing new was proposed in the last round"
    return None

"""What was tried and learned, condensed for the next prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from beamsearch.proposer.questions import Attempt, Memory, Reflection
from beamsearch.records.candidate import Candidate


def condense(
    candidates: Sequence[Candidate],
    times: Mapping[str, float],
    reflections: Sequence[Reflection],
) -> Memory:
    """Every attempt of completed rounds, and every lesson once, the newest last.

    `times` are comparable times by candidate name (see `search.survivors`).
    """
    attempts = []
    for candidate in candidates:
        if candidate.parent is None:
            continue
        own, parents = times.get(candidate.name), times.get(candidate.parent)
        attempts.append(
            Attempt(
                name=candidate.name,
                parent=candidate.parent,
                direction=str(candidate.direction) if candidate.direction else None,
                description=candidate.description,
                outcome=candidate.verdict.outcome.value,
                reason=candidate.verdict.reason,
                time=str(candidate.measurement) if candidate.measurement else None,
                speedup_over_parent=parents / own if own and parents else None,
            )
        )
    lessons = [lesson for reflection in reflections for lesson in reflection.lessons]
    avoid = [pattern for reflection in reflections for pattern in reflection.patterns_to_avoid]
    return Memory(
        attempts=attempts,
        lessons=list(dict.fromkeys(lessons)),
        patterns_to_avoid=list(dict.fromkeys(avoid)),
    )

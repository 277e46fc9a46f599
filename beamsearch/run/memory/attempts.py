"""What was tried and learned, condensed for the next prompt."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from beamsearch.problem.kernel import alike
from beamsearch.proposer.questions import Attempt, Earlier, Idea, Memory, Shown
from beamsearch.records.candidate import Candidate
from beamsearch.run.memory.lessons import Lesson, worded
from beamsearch.search.survivors import FAMILY_REACH, distinct

SHOWN = 4
"""Kernels shown in full, the worker's own parent among them: a prompt has room for three more."""
LOOKED_AT = 32
"""Best kernels among which those are found: later ones are too slow to learn from."""


def condense(
    candidates: Sequence[Candidate],
    times: Mapping[str, float],
    taught: Sequence[Lesson],
    source: Callable[[Candidate], str],
    earlier: Earlier | None = None,
    expected: Mapping[tuple[int, int | None], float] | None = None,
) -> Memory:
    """Every attempt of completed rounds, the best kernels in full, and every lesson once, the
    newest last.

    `times` are comparable times by candidate name (see `search.distinct`); `expected` are the
    speedups that plans expected, by round and worker.
    """
    attempts = []
    expected = expected or {}
    printed = {c.name: str(c.measurement) for c in candidates if c.measurement}
    for candidate in candidates[1:]:  # the first one is what all is measured against
        own, parents = times.get(candidate.name), times.get(candidate.parent or "")
        attempts.append(
            Attempt(
                name=candidate.name,
                parent=candidate.parent,
                direction=str(candidate.direction) if candidate.direction else None,
                description=candidate.description,
                outcome=candidate.verdict.outcome.value,
                reason=candidate.verdict.reason,
                time=printed.get(candidate.name),
                modelled=candidate.measurement is not None
                and candidate.measurement.source == "modelled",
                parent_time=printed.get(candidate.parent or ""),
                speedup_over_parent=parents / own if own and parents else None,
                is_timed_again=candidate.confirmed_ratio is not None,
                expected=expected.get((candidate.round, candidate.worker)),
                repair_of=candidate.repair_of,
                tuned_from=candidate.tuned_from,
                is_persons=candidate.is_persons,
            )
        )
    best: list[Shown] = []
    ranked = distinct(candidates, times)[:LOOKED_AT]
    for c in ranked:
        if times[c.name] > FAMILY_REACH * times[ranked[0].name]:
            break  # its line among the attempts says enough
        text = source(c)
        # A second form of one kernel would take a page to show a constant.
        if len(best) < SHOWN and not any(alike(text, shown.source) for shown in best):
            best.append(_shown(c, text))
    return Memory(
        attempts=attempts,
        best=best[::-1],
        ideas=_ideas(candidates, times),
        lessons=worded(taught, avoid=False),
        patterns_to_avoid=worded(taught, avoid=True),
        earlier=earlier or Earlier(),
    )


def _shown(c: Candidate, source: str) -> Shown:
    return Shown(
        name=c.name,
        description=c.description,
        time=str(c.measurement),
        source=source,
        is_persons=c.is_persons,
    )


def _ideas(candidates: Sequence[Candidate], times: Mapping[str, float]) -> list[Idea]:
    """What came of each finding that was gone after, the one tried most often first; repairs and
    tuned forms are further tries of one idea and do not count; a duplicate is a try wasted."""
    tried: dict[str, list[Candidate]] = {}
    for candidate in candidates:
        if candidate.direction is not None and candidate.parent is not None:
            tried.setdefault(candidate.direction.finding, []).append(candidate)
    ideas = []
    for finding, made in tried.items():
        speedups = [
            times[c.parent] / times[c.name]
            for c in made
            if c.parent is not None and c.parent in times and c.name in times
        ]
        repaired = {c.repair_of for c in made if c.verdict.correct}
        first = [c for c in made if c.repair_of is None and c.tuned_from is None]
        ideas.append(
            Idea(
                finding=finding,
                tried=len(first),
                correct=sum(c.verdict.correct or _mended(c, repaired) for c in first),
                best_speedup=max(speedups, default=None),
            )
        )
    return sorted(ideas, key=lambda idea: -idea.tried)


def _mended(candidate: Candidate, repaired: set[str | None]) -> bool:
    """Whether one of the candidate's repairs is correct: `repaired` names what these repair."""
    return any(name and (name + "-").startswith(candidate.name + "-") for name in repaired)

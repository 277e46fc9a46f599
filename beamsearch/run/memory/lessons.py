"""What a run's reflections taught, who taught it, and what was measured to the contrary since."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from beamsearch.proposer.playbook.playbook import move
from beamsearch.proposer.questions import Reflection
from beamsearch.proposer.replies import UnreadableReply, read_reflection
from beamsearch.records.candidate import Candidate
from beamsearch.records.record import Record
from beamsearch.records.trace import Trace
from beamsearch.search.pairs import is_win

SAME_IDEA = 0.7
"""Share of the words of two descriptions above which they tell one idea, where all numbers in them
are the same. `loads evicted first` and `loads evicted last, stores first` share 0.6 and are two."""


class Lesson(Record):
    """One sentence of a reflection, with its lineage."""

    text: str
    avoid: bool
    """A pattern to avoid, rather than something to do again."""
    round: int
    teacher: str | None
    """The candidate that it speaks of; none where its worker made none that is correct."""
    told_by: str
    """Whose it is, in words: that candidate where the text says so, else its worker; and the kernel
    that it was made from, which the text calls the parent."""


def reflections(trace: Trace, number: int) -> dict[int, Reflection]:
    """What the workers of a completed round wrote that can be read, by worker."""
    found: dict[int, Reflection] = {}
    for worker in range(len(list(trace.round(number).glob("workers/w*")))):
        for stem in ("reflexion", "reflexion_2"):
            path = trace.worker(number, worker) / f"{stem}.txt"
            if not path.is_file():
                continue
            try:
                found[worker] = read_reflection(path.read_text())
                break
            except UnreadableReply:
                continue  # the next attempt, where there was one, was asked for because of this
    return found


def lessons(
    trace: Trace, rounds: int, candidates: Sequence[Candidate], times: Mapping[str, float]
) -> list[Lesson]:
    """Every lesson of the rounds before `rounds` that still stands, the oldest first.

    `times` are comparable times by candidate name (see `summary.comparable_times`).
    """
    every: list[Lesson] = []
    for number in range(1, rounds):
        for worker, reflection in reflections(trace, number).items():
            made = [c for c in candidates if (c.round, c.worker) == (number, worker)]
            dissected = [reflection.dissection] if reflection.dissection else []
            for texts, avoid in (
                ([*dissected, *reflection.lessons], False),
                (reflection.patterns_to_avoid, True),
            ):
                for text in texts:
                    named, timed = _named(text, made), _fastest(made, times)
                    parent = next((c.parent for c in made if c.parent), None)
                    whose = named or f"r{number}-w{worker}"
                    every.append(
                        Lesson(
                            text=text,
                            avoid=avoid,
                            round=number,
                            teacher=named or timed,
                            told_by=f"{whose}, from {parent}" if parent else whose,
                        )
                    )
    return standing(every, candidates, times)


def standing(
    taught: Sequence[Lesson], candidates: Sequence[Candidate], times: Mapping[str, float]
) -> list[Lesson]:
    """The lessons that nothing measured since contradicts.

    A lesson is contradicted by a later candidate with the same idea as its teacher's, made from the
    kernel that the teacher was made from or from one that descends from it, whose time against its
    own parent came out the other way, both outside the noise.
    """
    by_name = {c.name: c for c in candidates}
    return [
        lesson
        for lesson in taught
        if lesson.teacher is None
        or not any(
            candidate.round > lesson.round
            and _contradicts(candidate, by_name[lesson.teacher], by_name, times)
            for candidate in candidates
        )
    ]


def worded(taught: Sequence[Lesson], *, avoid: bool) -> list[str]:
    """Lessons, or patterns to avoid, as a prompt shows them: a text once, after who taught it."""
    teachers: dict[str, list[str]] = {}
    for lesson in taught:
        if lesson.avoid == avoid:
            names = teachers.setdefault(lesson.text, [])
            if lesson.teacher not in lesson.text.split() and lesson.told_by not in names:
                names.append(lesson.told_by)
    return [f"[{'; '.join(names)}] {text}" if names else text for text, names in teachers.items()]


def speedup(candidate: Candidate, times: Mapping[str, float]) -> float | None:
    """Over its parent; None where either has no time."""
    own, parent = times.get(candidate.name), times.get(candidate.parent or "")
    return parent / own if own and parent else None


def _named(text: str, made: Sequence[Candidate]) -> str | None:
    """The candidate whose name or description the text has."""
    named = [c for c in made if re.search(rf"\b{re.escape(c.name)}(?![\w-])", text)]
    told = sorted((c for c in made if c.description in text), key=lambda c: -len(c.description))
    return next((c.name for c in [*named, *told]), None)


def _fastest(made: Sequence[Candidate], times: Mapping[str, float]) -> str | None:
    timed = [c.name for c in made if c.name in times]
    return min(timed, key=lambda name: times[name], default=None)


def _contradicts(
    later: Candidate,
    teacher: Candidate,
    by_name: Mapping[str, Candidate],
    times: Mapping[str, float],
) -> bool:
    outcome, before = _outcome(later, times), _outcome(teacher, times)
    return (
        outcome * before < 0
        and any(name == teacher.parent for name in _ancestors(later, by_name))
        and _same_idea(later.description, teacher.description)
    )


def _outcome(candidate: Candidate, times: Mapping[str, float]) -> int:
    """1 for faster than its parent, -1 for slower, 0 for a tie or no time."""
    own, parent = times.get(candidate.name), times.get(candidate.parent or "")
    if own is None or parent is None:
        return 0
    return 1 if is_win(own, parent) else -1 if is_win(parent, own) else 0


def _ancestors(candidate: Candidate, by_name: Mapping[str, Candidate]) -> Iterator[str]:
    name = candidate.parent
    while name is not None:
        yield name
        name = by_name[name].parent


def _same_idea(one: str, other: str) -> bool:
    words = [set(re.findall(r"\w+", move(text).lower())) for text in (one, other)]
    numbers = [{word for word in found if word.isdigit()} for found in words]
    either = words[0] | words[1]
    shared = len(words[0] & words[1])
    return numbers[0] == numbers[1] and bool(either) and shared / len(either) > SAME_IDEA

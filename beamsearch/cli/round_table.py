"""A run's rounds and candidates in lines, with what makes the fastest a win or none."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import TYPE_CHECKING

from beamsearch.cli.account import differences, swept
from beamsearch.cli.display import describe_candidate
from beamsearch.records.ratios import in_turns
from beamsearch.report.numbers import of_floor, sign
from beamsearch.report.words import beside

if TYPE_CHECKING:
    from beamsearch.records.candidate import Candidate
    from beamsearch.records.run import RunRecord
    from beamsearch.records.trace import Trace


LEGEND = (
    "±: half of the range from the 20th to the 80th percentile of the timed calls. Times of two "
    "stays on a GPU meet only as the ratios to the first kernel beside them. A kernel's line has "
    "its time as it was judged; where it was timed again in turns with the best before it, the "
    "ratios rest on that."
)


def table(trace: Trace, record: RunRecord) -> list[str]:
    """A line a round, and its candidates below it."""
    by_number = {item.round: item for item in record.rounds}
    rounds = trace.completed_rounds()
    by_name = {candidate.name: candidate for item in rounds for candidate in item.candidates}
    measured, again = record.environment.gpu is not None, in_turns(trace, by_name)
    lines: list[str] = [LEGEND] if measured else []
    seen: set[str | None] = set()
    for item in rounds:
        line = by_number.get(item.round)
        told = f"round {item.round}"
        if line is not None and line.best is not None:
            turns = again.get(line.best)
            time = turns.time if turns else line.best_time
            about, multiple = sign(time), of_floor(time, record)
            told += f"  best {line.best} {time}"
            told += f" in turns with {turns.beside}" if turns else ""
            told += f"  {about}{line.speedup:.2f}x" if line.speedup is not None else ""
            told += f"  {about}{multiple:.2f}x the floor" if multiple is not None else ""
            told += f"  {line.correct} of {line.candidates} correct"
        told += "  win" if item.win else ""
        lines.append(told)
        visits = {c.measurement.visit for c in item.candidates if c.measurement}
        if seen and visits - seen:
            lines.append("    (another stay on a GPU)")
        seen |= visits
        lines += [f"    {line}" for line in candidate_lines(item.candidates)]
        lines += [f"    {line}" for line in [*beside(trace, item, by_name), *swept(item)]]
        lines += [f"    {line}" for line in differences(item)]
    return lines


def candidate_lines(candidates: Iterable[Candidate], width: int = 70) -> list[str]:
    """A line each, in order of rounds; descriptions are cut so that those of a round differ."""
    lines = []
    for _, group in groupby(candidates, key=lambda candidate: candidate.round):
        own = list(group)
        texts = distinct([candidate.description for candidate in own], width)
        lines += [describe_candidate(*each) for each in zip(own, texts, strict=True)]
    return lines


def distinct(texts: list[str], width: int = 70) -> list[str]:
    """Descriptions cut to a width so that those that differ still do: where the plain cut would
    hide it, the words at which each leaves each other one."""
    words = [text.split() for text in texts]
    return [_cut(own, [other for other in words if other != own], width) for own in words]


def _cut(own: list[str], others: list[list[str]], width: int) -> str:
    whole = " ".join(own)
    places = sorted({_shared(own, other) for other in others})
    if len(whole) <= width or not places or len(" ".join(own[: places[-1] + 1])) < width:
        return whole
    told = ""
    for length in range(8, 0, -1):
        kept = [at for at in range(len(own)) if any(0 <= at - place < length for place in places)]
        told = " ".join(own[at] if at - 1 in kept else f"… {own[at]}" for at in kept)
        if len(told) <= width:
            break
    return told


def _shared(one: list[str], other: list[str]) -> int:
    """How many words both begin with."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((number for number, (a, b) in pairs if a != b), min(len(one), len(other)))

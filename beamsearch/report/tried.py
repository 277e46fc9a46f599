"""What was tried in a run: by worker, by direction, in vain, and what failed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from textwrap import shorten
from typing import NamedTuple

from beamsearch.records.amounts import amount
from beamsearch.records.candidate import OPEN, Candidate
from beamsearch.records.round import RoundRecord, tuning_gain
from beamsearch.records.tuning import Tuning
from beamsearch.report.counters import finding_measured
from beamsearch.report.numbers import configuration
from beamsearch.report.run_data import Change, RunData

LONGEST = 200
"""Letters of why a configuration failed."""
NAMED = 5
"""Of many settings that were timed, how many are named."""


def outcome(run: RunData, candidate: Candidate) -> str:
    """What came of a candidate, in a few words."""
    verdict = candidate.verdict
    if not verdict.correct:
        what = str(verdict.outcome).replace("_", " ")
        stage = str(verdict.stage or what).replace("_", " ")
        return what if what.startswith(stage) else f"{what} at {stage}"
    change = run.against(candidate, candidate.parent)
    if change is None:
        return "correct"
    return "ties with its parent" if change.word == "tie" else f"{change.word} than its parent"


def failures(run: RunData) -> list[tuple[str, list[Candidate]]]:
    """What is not correct, by outcome and stage, the most frequent first."""
    found: dict[str, list[Candidate]] = defaultdict(list)
    for candidate in run.candidates.values():
        if not candidate.verdict.correct:
            found[outcome(run, candidate)].append(candidate)
    return sorted(found.items(), key=lambda item: -len(item[1]))


def in_vain(run: RunData) -> list[list[Candidate]]:
    """The kernels of each worker that made none faster than its parent, in the order of rounds."""
    return [own for own in run.workers if not any(_gained(run)(c) for c in own)]


def beside_the_line(run: RunData) -> list[list[Candidate]]:
    """The kernels of each worker that gained on its parent and made none of the winner's line."""
    line = {candidate.name for candidate in run.lineage(run.winner)}
    return [
        own
        for own in run.workers
        if any(map(_gained(run), own)) and not any(c.name in line for c in own)
    ]


def in_the_line(run: RunData) -> list[Candidate]:
    """Kernels whose worker made one of the winner's line, but for that one."""
    line = {candidate.name for candidate in run.lineage(run.winner)}
    workers = [own for own in run.workers if any(c.name in line for c in own)]
    return [c for own in workers for c in own if c.name not in line and c.verdict.correct]


def _gained(run: RunData) -> Callable[[Candidate], bool]:
    def gained(candidate: Candidate) -> bool:
        change = run.against(candidate, candidate.parent)
        return change is not None and change.word == "faster"

    return gained


def against_best(run: RunData, candidate: Candidate) -> Change | None:
    """How it stands against the best of its round, where that is another."""
    best = run.rounds_best.get(candidate.round)
    return run.against(candidate, best) if best != candidate.name else None


def described(run: RunData, candidate: Candidate) -> str:
    """Its description; of a repair, that of what was repaired before its own."""
    repaired = run.candidates.get(candidate.repair_of or "")
    if repaired is None:
        return candidate.description
    return f"{described(run, repaired)} Repaired: {candidate.description}"


def ran_with(candidate: Candidate) -> str:
    """The configuration that its autotuner chose, in a sentence of its own; empty where it has no
    autotuner."""
    chosen = configuration(candidate.measurement)
    return f" Ran with{chosen.replace('  [', ' [')}." if chosen else ""


class Direction(NamedTuple):
    """What came of the kernels of one direction."""

    name: str
    counts: Counter[str]
    """`faster`, `tie`, `slower` than their parents, or `failed`."""
    best: str
    """Which of them gained most on its parent."""
    measured: str
    """What the direction's finding is measured by, in that one's parent and in itself."""


def directions(run: RunData) -> list[Direction]:
    """What came of each direction's kernels against their parents."""
    found: dict[str, list[Candidate]] = defaultdict(list)
    for candidate in run.candidates.values():
        if candidate.direction is not None:
            found[candidate.direction.finding].append(candidate)
    rows = []
    for direction, some in found.items():
        changes = {c.name: run.against(c, c.parent) for c in some}
        counts = Counter(change.word if change else "failed" for change in changes.values())
        gains = {name: change.speedup for name, change in changes.items() if change}
        best = max(gains, key=gains.__getitem__, default="")
        measured = ""
        if best and direction != OPEN:
            before, after = run.profile(run.candidates[best].parent or ""), run.profile(best)
            measured = finding_measured(direction, before, after) if after else "not profiled"
        rows.append(Direction(direction.replace("_", " "), counts, best, measured))
    return rows


def aim(run: RunData, candidate: Candidate) -> str:
    """What its worker was sent after: the direction, and what its parent's profile says of it."""
    direction = candidate.direction
    if direction is None:
        return "nothing in particular"
    told = str(direction).replace("_", " ").replace(OPEN, "open: no finding was given", 1)
    parent = run.candidates.get(candidate.parent or "")
    for finding in run.findings(parent) if parent else []:
        if direction.finding in (finding.kind, *finding.seen_as):
            return f"{told} ({finding.title[0].lower()}{finding.title[1:]})"
    return told


def swept(run: RunData) -> list[str]:
    """What was tuned, and what that gained: a line for the kernels of which the same was tried."""
    alike: dict[tuple[str, str], list[str]] = defaultdict(list)
    for record in run.rounds:
        for tuning in record.tunings:
            alike[_tried(tuning), _gain(tuning, record)].append(tuning.of)
    told = []
    for (tried, gained), names in alike.items():
        own = {f for n in names for f in getattr(run.candidates[n].measurement, "configs", {})}
        itself = (
            f", but for {', '.join(sorted(own))}, autotuned by the kernel itself" if own else ""
        )
        told.append(f"{', '.join(names)}: {tried}{itself}; {gained}")
    return told


def _gain(tuning: Tuning, record: RoundRecord) -> str:
    gain, about = tuning_gain(tuning, record), "~" if tuning.modelled else ""
    return f"{about}{gain:.2f}x faster" if gain > 1 else "nothing gained"


def _tried(tuning: Tuning) -> str:
    """How many configurations were timed, the first of them, and what could not be timed."""
    forms = tuning.forms[1:]
    timed = [form.setting for form in forms if form.times_ms]
    failed: dict[str, list[str]] = defaultdict(list)
    for form in forms:
        if not form.times_ms:
            failed[form.reason].append(form.setting)
    told = f"{amount(len(timed), 'configuration')} timed{_some(timed)}"
    for why, settings in failed.items():
        reason = shorten(why, LONGEST, placeholder=" …")
        told += f"; {amount(len(settings), 'configuration')} not{_some(settings)}: {reason}"
    return told


def _some(settings: Sequence[str]) -> str:
    """The first of them, in brackets."""
    more = [f"and {len(settings) - NAMED} more"] * (len(settings) > NAMED)
    return f" ({'; '.join([*settings[:NAMED], *more])})" if settings else ""

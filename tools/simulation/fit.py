"""Fitting the landscape to recorded runs and to variants written by hand.

Every number is counted or listed; nothing is tuned. Families are those of `search.families` in a
run, and the templates of the variants; a family's best is its best measured member.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from beamsearch.records.packed import opened_run
from beamsearch.records.ratios import comparable_times
from beamsearch.search.pairs import is_tie
from beamsearch.search.survivors import families
from tools.simulation.landscape import Family, Landscape, Start

MEMBERS = 3
"""Measured kernels that a family needs before its slacks mean something: the best of two is no
measure of what is possible."""
ENOUGH = 30
"""Later changes of the family that say by themselves what one gains or loses; of fewer, what first
ones did is counted too."""


@dataclass(frozen=True)
class Step:
    """A measured child of a measured parent."""

    plan: tuple[str, int, int]
    """Problem, round and worker."""
    same: bool
    """Whether the child is of the parent's family."""
    first: bool
    """Whether no family was changed between the first kernel and the parent."""
    tie: bool
    before: float
    """Distance of the parent's family."""
    after: float
    slack: float
    """The child's in its family."""
    members: int
    """Measured members of the child's family."""
    family: str


@dataclass(frozen=True)
class Run:
    """What a recorded run says."""

    problem: str
    floor_ms: float
    start: tuple[float, float]
    """Distance and slack of the first kernel."""
    bests: list[float]
    """Logarithm of the best time over the floor after each round, 0 first."""
    steps: list[Step]
    judged: int
    correct: int
    spreads: list[float]
    """Standard deviation of each median, relative."""


def read_run(folder: Path) -> Run:
    """Steps of a run whose times were measured. Raises UsageError where the folder holds none."""
    trace = opened_run(folder)
    record = trace.run_record()
    if record.floor is None or record.environment.gpu is None:
        raise ValueError(f"{folder} has no measured times")
    rounds = trace.completed_rounds()
    everyone = [c for done in rounds for c in done.candidates]

    family = families(everyone, trace.kernel_source)
    first = everyone[0]
    # Runs through batch files come back to other GPUs: their times meet only as ratios.
    ratios = comparable_times(trace, everyone)
    times = {name: ratio * first.time_ms for name, ratio in ratios.items()}
    best = {
        name: min(times[member] for member in family if family[member] == name)
        for name in set(family.values())
    }
    sizes = Counter(family.values())
    floor = record.floor.time_ms
    by_name = {c.name: c for c in everyone}
    generation: dict[str, int] = {}
    steps = []
    for c in everyone:
        if c.name not in times or c.parent is None:
            generation[c.name] = 0
            continue
        same = family[c.name] == family[c.parent]
        generation[c.name] = generation[c.parent] + (not same)
        steps.append(
            Step(
                plan=(record.problem, c.round, c.worker or 0),
                same=same,
                first=generation[c.parent] == 0,
                tie=is_tie(times[c.name], times[c.parent]),
                before=math.log(best[family[c.parent]] / floor),
                after=math.log(best[family[c.name]] / floor),
                slack=math.log(times[c.name] / best[family[c.name]]),
                members=sizes[family[c.name]],
                family=family[c.name],
            )
        )
    own = best[family[first.name]]
    measurements = [by_name[name].measurement for name in times]
    return Run(
        problem=record.problem,
        floor_ms=floor,
        start=(math.log(own / floor), math.log(times[first.name] / own)),
        bests=[math.log(times[done.running_best] / floor) for done in rounds],
        steps=steps,
        judged=sum(c.parent is not None for c in everyone),
        correct=len(steps),
        spreads=[
            # 20th to 80th percentile is 1.68 standard deviations of one call; a median of n has
            # 1.25 / sqrt(n) of that.
            (m.p80_ms - m.p20_ms) / 1.68 * 1.25 / math.sqrt(m.count) / m.time_ms
            for m in measurements
            if m is not None and m.p80_ms and m.p20_ms and m.count
        ],
    )


def fit(runs: Sequence[Run], variants: Sequence[Mapping[str, Any]]) -> Landscape:
    """The landscape of recorded runs and of hand-written variants (`tests/data/h200_variants.json`:
    `name`, `problem`, `ms`, `state`; a template's name stands before the first hyphen)."""
    steps = [step for run in runs for step in run.steps]
    others = [step for step in steps if not step.same]
    later = [step for step in others if not step.first]
    templates, written = _templates(runs, variants)
    followed = Counter(step.plan for step in others)
    both, one = (sum(count == n for count in followed.values()) for n in (2, 1))
    follows = 2 * both / (2 * both + one)
    starts = [_start(run, templates.get(run.problem, {})) for run in runs]
    gains = sum(step.after < step.before for step in later)
    bests = [(run.start[0], f.distance) for run in runs for f in _start(run, {}).families]
    bests += [
        (run.start[0], distance)
        for run in runs
        for distance in templates.get(run.problem, {}).values()
    ]
    changes = [(step.before, step.after) for step in later]
    if len(later) < ENOUGH:
        changes += bests
    tuned = [step for step in steps if step.same]
    return Landscape(
        starts=starts,
        first_plans=min(1.0, _share([not s.same for s in steps if s.first]) / follows),
        later_plans=_share([not s.same for s in steps if not s.first]) / follows,
        follows=follows,
        # One more of each than was seen: never is not what a few steps can show.
        later_gains=(gains + 1) / (len(later) + 2),
        shares=_short(after / before for before, after in changes if after < before),
        losses=_short(after - before for before, after in changes if after >= before),
        first_slacks=_short(step.slack for step in others if step.members >= MEMBERS),
        ties=_share([step.tie for step in tuned]),
        slacks=_short(s.slack for s in tuned if not s.tie and s.members >= MEMBERS),
        failures=1 - sum(run.correct for run in runs) / sum(run.judged for run in runs),
        noise=round(median(spread for run in runs for spread in run.spreads), 5),
        steps=len(steps),
        variants=written,
    )


def _start(run: Run, templates: Mapping[str, float]) -> Start:
    """A problem's first kernel, the families its children were of, and the templates, once each."""
    arrived = Counter(s.family for s in run.steps if s.first and not s.same)
    distances = {s.family: s.after for s in run.steps}
    found = [(name, distances[name], float(count)) for name, count in arrived.items()]
    found += [(name, distance, 1.0) for name, distance in templates.items()]
    return Start(
        problem=run.problem,
        distance=round(run.start[0], 4),
        slack=round(run.start[1], 4),
        families=[
            Family(name=name, distance=round(distance, 4), weight=weight)
            for name, distance, weight in found
        ],
    )


def _templates(
    runs: Sequence[Run], variants: Sequence[Mapping[str, Any]]
) -> tuple[dict[str, dict[str, float]], int]:
    """Problem -> template -> distance of its best; and how many variants that rests on."""
    floors = {run.problem: run.floor_ms for run in runs}
    found: dict[str, dict[str, float]] = {}
    count = 0
    for row in variants:
        template, hyphen, _ = row["name"].partition("-")
        if not hyphen or row["state"] != "ok" or row["problem"] not in floors:
            continue
        count += 1
        best = found.setdefault(row["problem"], {})
        distance = math.log(row["ms"] / floors[row["problem"]])
        best[template] = min(distance, best.get(template, math.inf))
    return found, count


def _share(values: Sequence[bool]) -> float:
    return sum(values) / len(values)


def _short(values: Any) -> list[float]:
    return sorted(round(value, 4) for value in values)

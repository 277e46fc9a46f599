"""Strategies side by side: what each has found after so many candidates, over many seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from statistics import fmean, stdev

from beamsearch.records.record import Record
from tools.simulation.landscape import MODELS, PLAYBOOK, Ground, Landscape, fitted
from tools.simulation.trial import COMPARED, USUAL, search

WORLDS: dict[str, tuple[Path, dict[str, float]]] = {
    "playbook": (PLAYBOOK, {}),
    "no later gains": (PLAYBOOK, {"later_gains": 0.0}),
    "models": (MODELS, {}),
    "failing code": (MODELS, {"failures": 0.4}),
    "one step only": (MODELS, {"later_gains": 0.0}),
}
"""What the recorded runs say, and the same changed: of a weaker model's first tries, 57.6% were
correct in CudaForge's report, and its second thoughts may be worth nothing."""

PATIENCES = (1, 2, 3, 4, 5, 6)
A_ROUND = USUAL.workers * USUAL.variants
"""Candidates of a round, the same for all strategies."""


class Estimate(Record):
    """A mean over seeds with its standard error."""

    mean: float
    error: float

    def __str__(self) -> str:
        return f"{self.mean:.3f} ±{self.error:.3f}"


class Curve(Record):
    """A strategy in a world."""

    world: str
    strategy: str
    best: list[Estimate]
    """By rounds done, 0 first: the best time known as a multiple of the floor, geometric mean over
    the problems."""
    patience: dict[int, tuple[float, float]]
    """By rounds of patience: the share of the candidates that were made before the search stopped,
    and how many times slower its best then was than at the end of all rounds."""

    def after(self, candidates: int) -> Estimate:
        """The best time after so many candidates, whole rounds."""
        return self.best[math.ceil(candidates / A_ROUND)]


def compare(seeds: int, *, rounds: int = USUAL.rounds, processes: int = 1) -> list[Curve]:
    """Every strategy in every world; a seed draws the same children for all of them."""
    asked = [(world, strategy) for world in WORLDS for strategy in COMPARED]
    work = partial(curve, seeds=seeds, rounds=rounds)
    if processes == 1:
        return [work(pair) for pair in asked]
    with ProcessPoolExecutor(processes) as pool:
        return list(pool.map(work, asked))


def world_of(name: str) -> Landscape:
    """The landscape of a world."""
    file, changes = WORLDS[name]
    return fitted(file).model_copy(update=changes)


def curve(pair: tuple[str, str], *, seeds: int, rounds: int) -> Curve:
    """One strategy in one world."""
    world, strategy = pair
    changed = world_of(world)
    best: list[list[float]] = [[] for _ in range(rounds + 1)]
    stops: dict[int, list[tuple[float, float]]] = {patience: [] for patience in PATIENCES}
    for seed in range(seeds):
        trials = [
            search(Ground(changed, start, seed), strategy, seed, rounds=rounds)
            for start in changed.starts
        ]
        for number, found in enumerate(best):
            found.append(fmean(math.log(trial.best(number)) for trial in trials))
        for patience, seen in stops.items():
            for trial in trials:
                end = trial.stops_at(patience)
                seen.append((end / rounds, math.log(trial.best(end) / trial.best(rounds))))
    return Curve(
        world=world,
        strategy=strategy,
        best=[_estimate(logs) for logs in best],
        patience={
            patience: (fmean(used for used, _ in seen), math.exp(fmean(loss for _, loss in seen)))
            for patience, seen in stops.items()
        },
    )


def _estimate(logs: Sequence[float]) -> Estimate:
    mean = math.exp(fmean(logs))
    error = stdev(logs) / math.sqrt(len(logs)) if len(logs) > 1 else math.inf
    return Estimate(mean=mean, error=mean * error)

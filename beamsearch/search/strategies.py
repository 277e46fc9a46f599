"""How a run is searched: whose children come next, and what is kept.

Pure: the same state gives the same answer.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from beamsearch.records.candidate import Candidate
from beamsearch.search.directions import worker_seed
from beamsearch.search.pairs import Ratio, is_win
from beamsearch.search.survivors import FAMILY_REACH, distinct, is_progress, survivors

FIRST_ATTEMPTS = 8
"""Made from the first kernels before anything is drawn: as in METR's KernelAgent
(metr.org/blog/2025-02-14-measuring-automated-kernel-engineering)."""

CONTENDERS = 3
"""How many of a round's kernels that seem to beat the best are timed again beside it: the first of
them may only have been lucky."""


@dataclass(frozen=True)
class State:
    """What a strategy sees of a run between two rounds."""

    round: int
    """The round to come; 1 is the first."""
    workers: int
    seed: int
    candidates: Sequence[Candidate]
    """Every candidate of the rounds before, the first kernels first."""
    times: Mapping[str, float]
    """Comparable times of the correct ones."""
    beam: Sequence[str]
    """What was kept after the last round, fastest first."""
    best: str
    """The best kernel so far, by confirmed wins."""
    stalled: bool
    """Whether the last round was without a win."""

    @property
    def first(self) -> list[str]:
        """The correct kernels that the run started from, fastest first."""
        first = [c for c in self.candidates if c.is_first]
        return [c.name for c in distinct(first, self.times)]


@dataclass(frozen=True)
class Strategy:
    """A way to search."""

    parents: Callable[[State], list[str]]
    """The parent of each worker of the round to come, in the order of the workers."""
    keeps_beam: bool = False
    """Whether several kernels are kept; else only the best, which only a confirmed win changes."""
    max_candidates: int | None = None
    """How many candidates it is made for, where the run sets no limit."""


def _in_turn(state: State) -> list[str]:
    """The beam in turn, so that any number of workers works with any width; without kernels that
    are more than FAMILY_REACH times slower than its fastest, of which nothing came in the recorded
    runs.

    After a round without a win one worker starts afresh, from a first kernel, where there are more
    workers than kernels kept: in the recorded runs 34 of 40 first children were built another way,
    and 6 of 168 later ones. What that gains and costs is in the simulation's table.
    """
    most = FAMILY_REACH * state.times[state.beam[0]]
    near = [name for name in state.beam if state.times[name] <= most]
    parents = [near[worker % len(near)] for worker in range(state.workers)]
    if state.stalled and state.workers > len(near):
        parents[-1] = state.first[0]
    return parents


def _first_ones(state: State) -> list[str]:
    """The first kernels in turn: independent attempts, of which the best counts."""
    first = state.first
    return [first[worker % len(first)] for worker in range(state.workers)]


def _drawn(state: State) -> list[str]:
    """Any correct kernel, the faster the likelier: drawn in proportion to the speedup over the
    first kernel, with replacement, one draw a worker from a seed of its own. METR's way."""
    attempts = [c for c in state.candidates if c.parent and not (c.repair_of or c.tuned_from)]
    if len(attempts) < FIRST_ATTEMPTS:
        return _first_ones(state)
    kernels = [c.name for c in distinct(state.candidates, state.times)]
    speedups = [1 / state.times[name] for name in kernels]
    seeds = [worker_seed(state.seed, state.round, worker) for worker in range(state.workers)]
    return [random.Random(seed).choices(kernels, speedups)[0] for seed in seeds]


STRATEGIES: dict[str, Strategy] = {
    "beam": Strategy(_in_turn, keeps_beam=True),
    "greedy": Strategy(lambda state: [state.best] * state.workers),
    "best-of-n": Strategy(_first_ones),
    "tree": Strategy(_drawn, max_candidates=300),
}
"""By the names that `--strategy` takes."""


@dataclass(frozen=True)
class Standing:
    """Where a run stands after a round."""

    best: Candidate | None
    """The winner; where there is none, the fastest correct candidate of the round."""
    win: bool
    """Whether it is confirmed to beat the running best of before."""
    running_best: Candidate
    beam: list[str]
    """What is kept: different kernels, fastest first, the running best always among them."""
    times: Mapping[str, float]
    """Comparable times as they were, but of those timed again by what came of that."""
    timed_again: list[str]


def settle(
    strategy: Strategy,
    before: Sequence[Candidate],
    made: Sequence[Candidate],
    running_best: Candidate,
    *,
    times: Mapping[str, float],
    k: int,
    families: Mapping[str, str],
    confirm: Callable[[list[Candidate], Candidate], Mapping[str, Ratio]],
) -> Standing:
    """What becomes of a round's candidates. k is the width of the beam.

    `confirm` times again: some candidates, fastest first, and the running best that they seem to
    beat; it gives their times over its time. It is asked at most once. Of equal kernels the running
    best is the one that stays, then the earlier. The best that a person gave in the round has a
    place, where it is at most FAMILY_REACH times slower than the fastest and there is more than
    one.
    """
    mark = times[running_best.name]
    seeming = [c for c in distinct(made, times) if is_win(times[c.name], mark)][:CONTENDERS]
    ratios = confirm(seeming, running_best) if seeming else {}
    times = {**times, **{name: mark * ratio.median for name, ratio in ratios.items()}}
    correct = distinct(made, times)
    faster = [name for name, ratio in ratios.items() if ratio.verdict == "faster"]
    winner = next((c for c in correct if c.name in faster), None)
    best = winner or next(iter(correct), None)
    running = winner or running_best
    kept = [running.name]
    if strategy.keeps_beam:
        progress = [c for c in made if c.name in times and is_progress(c, times, families)]
        found = [c.name for c in survivors([running, *before, *progress], times, k, families)]
        near = FAMILY_REACH * times[found[0]]
        given = [c.name for c in correct if c.is_persons and times[c.name] <= near][:1]
        # Others that tie with the running best may have taken every place.
        sure = list(dict.fromkeys([running.name, *given]))[:k]
        room = min(k, len({*found, *given}))
        others = [name for name in found if name not in sure][: room - len(sure)]
        kept = sorted([*sure, *others], key=lambda name: times[name])
    return Standing(best, winner is not None, running, kept, times, list(ratios))

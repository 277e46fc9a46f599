"""The seam on which a run is searched: whose children come next, and what is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from beamsearch.records.candidate import Candidate
from beamsearch.search.noise import is_win
from beamsearch.search.survivors import distinct


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
        first = [c for c in self.candidates if c.parent is None]
        return [c.name for c in distinct(first, self.times)]


class Strategy(Protocol):
    """Both are pure: the same state gives the same answer."""

    max_candidates: ClassVar[int | None]
    """How many candidates it is made for, where the run sets no limit."""

    def parents(self, state: State) -> list[str]:
        """The parent of each worker of the round to come, in the order of the workers."""

    def kept(
        self,
        before: Sequence[Candidate],
        made: Sequence[Candidate],
        times: Mapping[str, float],
        k: int,
        families: Mapping[str, str],
    ) -> list[Candidate]:
        """What is kept of the kernels kept before and those made since: different ones, fastest
        first. k is the width of the beam."""


@dataclass(frozen=True)
class Standing:
    """Where a run stands after a round."""

    best: Candidate | None
    """The fastest correct candidate of the round."""
    win: bool
    """Whether it is confirmed to beat the running best of before."""
    running_best: Candidate
    beam: list[str]
    """What is kept: different kernels, fastest first, the running best always among them."""


def settle(
    strategy: Strategy,
    before: Sequence[Candidate],
    made: Sequence[Candidate],
    running_best: Candidate,
    *,
    times: Mapping[str, float],
    k: int,
    families: Mapping[str, str],
    confirm: Callable[[Candidate, Candidate], bool],
) -> Standing:
    """What becomes of a round's candidates.

    `confirm` says whether the first beats the second, both measured again; it is asked once, where
    the round's best beats the running best. Of equal kernels the running best is the one that
    stays, then the earlier.
    """
    correct = distinct(made, times)
    best = correct[0] if correct else None
    faster = best is not None and is_win(times[best.name], times[running_best.name])
    win = best is not None and faster and confirm(best, running_best)
    running = best if best is not None and win else running_best
    kept = strategy.kept([running, *before], made, times, k, families)
    if running not in kept:  # others that tie with it took every place
        kept = sorted([running, *kept[:-1]], key=lambda c: times[c.name])
    return Standing(best=best, win=win, running_best=running, beam=[c.name for c in kept])

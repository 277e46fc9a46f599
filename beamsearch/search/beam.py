"""k parents, the workers dealt over them in turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from beamsearch.records.candidate import Candidate
from beamsearch.search.strategy import State
from beamsearch.search.survivors import is_progress, survivors


class Beam:
    """k different kernels are kept, and each has as many workers as the others.

    After a round without a win one worker starts afresh, from a first kernel, where there are more
    workers than kernels kept: in the recorded runs 34 of 40 first children were built another way,
    and 6 of 168 later ones. What that gains and costs is in the simulation's table.
    """

    max_candidates: ClassVar[int | None] = None

    def parents(self, state: State) -> list[str]:
        """The beam in turn, so that any number of workers works with any width."""
        parents = [state.beam[worker % len(state.beam)] for worker in range(state.workers)]
        if state.stalled and state.workers > len(state.beam):
            parents[-1] = state.first[0]
        return parents

    def kept(
        self,
        before: Sequence[Candidate],
        made: Sequence[Candidate],
        times: Mapping[str, float],
        k: int,
        families: Mapping[str, str],
    ) -> list[Candidate]:
        """The survivors of the beam and of what workers returned: their progress."""
        returned = [c for c in made if c.name in times and is_progress(c, times, families)]
        return survivors([*before, *returned], times, k, families)

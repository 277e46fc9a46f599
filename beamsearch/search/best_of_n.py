"""Everything is made from the first kernel."""

from __future__ import annotations

from beamsearch.search.greedy import Greedy
from beamsearch.search.strategy import State


class BestOfN(Greedy):
    """N independent attempts, of which the best counts. Nothing is built upon."""

    def parents(self, state: State) -> list[str]:
        """The first kernels in turn."""
        first = state.first
        return [first[worker % len(first)] for worker in range(state.workers)]

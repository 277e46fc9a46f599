"""Parents are drawn by speedup from all kernels so far."""

from __future__ import annotations

import random
from typing import ClassVar

from beamsearch.search.best_of_n import BestOfN
from beamsearch.search.plan import worker_seed
from beamsearch.search.strategy import State
from beamsearch.search.survivors import distinct

FIRST_ATTEMPTS = 8
"""Made from the first kernels before anything is drawn: as in METR's KernelAgent
(metr.org/blog/2025-02-14-measuring-automated-kernel-engineering)."""


class Tree(BestOfN):
    """Any correct kernel may have children at any time, the faster the likelier.

    The speedup is over the first kernel, and a kernel is drawn in proportion to it, with
    replacement: METR's way, of up to 300 attempts in all.
    """

    max_candidates: ClassVar[int | None] = 300

    def parents(self, state: State) -> list[str]:
        """One draw a worker, each from a seed of its own."""
        attempts = [c for c in state.candidates if c.parent and not (c.repair_of or c.tuned_from)]
        if len(attempts) < FIRST_ATTEMPTS:
            return super().parents(state)
        kernels = [c.name for c in distinct(state.candidates, state.times)]
        speedups = [1 / state.times[name] for name in kernels]
        return [
            random.Random(worker_seed(state.seed, state.round, worker)).choices(kernels, speedups)[
                0
            ]
            for worker in range(state.workers)
        ]

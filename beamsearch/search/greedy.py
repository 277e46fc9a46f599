"""The best kernel is every worker's parent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from beamsearch.records.candidate import Candidate
from beamsearch.search.strategy import State


class Greedy:
    """A beam of one, which only a confirmed win changes."""

    max_candidates: ClassVar[int | None] = None

    def parents(self, state: State) -> list[str]:
        """The running best for everybody."""
        return [state.best] * state.workers

    def kept(
        self,
        before: Sequence[Candidate],
        made: Sequence[Candidate],
        times: Mapping[str, float],
        k: int,
        families: Mapping[str, str],
    ) -> list[Candidate]:
        """The running best, which comes first of what was kept before."""
        return list(before[:1])

"""Where a run's time went."""

from __future__ import annotations

from collections import Counter

from beamsearch.records.record import Record


class LaneUse(Record):
    """Seconds by what the lane was busy with, and by what it waited for while idle.

    Without a GPU there is no lane, and all is idle.
    """

    busy_s: dict[str, float] = {}
    idle_s: dict[str, float] = {}

    @property
    def share(self) -> float | None:
        """Share (0..1) of the time in which the lane was held; none before any has passed."""
        busy = sum(self.busy_s.values())
        whole = busy + sum(self.idle_s.values())
        return busy / whole if whole else None

    def plus(self, later: LaneUse) -> LaneUse:
        """The use of both runs together."""
        return LaneUse(
            busy_s=_sum(self.busy_s, later.busy_s), idle_s=_sum(self.idle_s, later.idle_s)
        )


def _sum(one: dict[str, float], other: dict[str, float]) -> dict[str, float]:
    both = Counter(one)
    both.update(other)
    return {what: round(seconds, 2) for what, seconds in both.most_common()}

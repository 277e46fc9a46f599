"""Where a run's time went."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from beamsearch.records.record import Record


class LaneUse(Record):
    """Seconds by what the lane was busy with, and by what it waited for while idle.

    Without a GPU there is no lane, and all is idle.
    """

    busy_s: dict[str, float] = {}
    idle_s: dict[str, float] = {}
    lanes: dict[str, LaneUse] = {}
    """Each lane's own, by its name, where there are several: the seconds above are then those of
    all together."""

    @property
    def share(self) -> float | None:
        """Share (0..1) of the time in which the lane was held; none before any has passed."""
        busy = sum(self.busy_s.values())
        whole = busy + sum(self.idle_s.values())
        return busy / whole if whole else None

    def plus(self, later: LaneUse) -> LaneUse:
        """The use of both runs together."""
        names = [*self.lanes, *(name for name in later.lanes if name not in self.lanes)]
        nothing = LaneUse()
        return LaneUse(
            busy_s=_sum([self.busy_s, later.busy_s]),
            idle_s=_sum([self.idle_s, later.idle_s]),
            lanes={
                name: self.lanes.get(name, nothing).plus(later.lanes.get(name, nothing))
                for name in names
            },
        )


def together(lanes: Mapping[str, LaneUse]) -> LaneUse:
    """The use of several lanes, with each one's."""
    return LaneUse(
        busy_s=_sum(use.busy_s for use in lanes.values()),
        idle_s=_sum(use.idle_s for use in lanes.values()),
        lanes=dict(lanes),
    )


def _sum(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    whole: Counter[str] = Counter()
    for part in parts:
        whole.update(part)
    return {what: round(seconds, 2) for what, seconds in whole.most_common()}

"""Where the runs of a suite are done: which GPUs the next one gets, and whose turn it is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from beamsearch.gpu.machine import Machine, find_machines
from beamsearch.run.place import find_place
from beamsearch.settings import Settings
from beamsearch.suite.budget import Used

RUNS_A_GPU = 2
"""While one run asks a model or compiles, the other has the GPU."""


@dataclass(frozen=True)
class Place:
    """A GPU that runs are done on, or this machine, where they are not dealt over GPUs."""

    uuid: str = ""
    kind: str = ""
    """What the driver calls it."""
    number: int | None = None
    lanes: int = 0
    """Lanes on a cluster, on whichever of its GPUs; none where this is a GPU of this machine."""


@dataclass(frozen=True)
class Places:
    """All that a suite has."""

    all: tuple[Place, ...] = (Place(),)
    runs_each: int = 1
    """Runs at once on each."""
    last_too: bool = False
    """Whether the last problems, as many as GPUs, begin as one more on each: begun when others end,
    they would have the end of a suite to themselves."""
    most: int | None = None
    """Runs at once in all, where that was asked for."""

    @property
    def at_once(self) -> int:
        """Runs at once, those aside that are the last."""
        return self.most or len(self.all) * self.runs_each

    @property
    def most_at_once(self) -> int:
        """The same with them."""
        return self.at_once + self.last_too * len(self.all)

    def in_use(self, going: Iterable[tuple[Sequence[Place], bool]]) -> Counter[Place]:
        """Of every GPU in use, how many runs have it as their first; 0 where some have it as
        another. Of each run, what it has, and whether it is to be alone there."""
        runs: Counter[Place] = Counter()
        for (first, *others), alone in going:
            if alone:
                full = self.runs_each + self.last_too
                runs.update(dict.fromkeys((first, *others), full))
            else:
                runs.update({first: 1} | dict.fromkeys(others, 0))
        return runs

    def for_next(
        self,
        kind: str | None,
        runs: Mapping[Place, int],
        waiting: int,
        *,
        alone: bool,
        going: int = 0,
    ) -> tuple[Place, ...]:
        """The GPUs for a run, all of one kind (`kind`, where it was begun on one); none where it
        has to wait. `runs`: as `in_use` gives them. `waiting`: problems that have not begun, this
        one too. `alone`: with no other on its GPU. `going`: runs under way.

        GPUs are gone through there and back, so that a list that goes from large to small gives
        each as much. Where there are more idle GPUs than problems that may begin, it gets an equal
        part of them. Where the GPUs do not get equally many runs, the last ones, as many as there
        are too many, get a second GPU each that others use too: it then does more of what is left.
        A second lane makes its own oracles, so that runs which can be dealt evenly have one each.
        """
        room = waiting if self.most is None else min(waiting, self.most - going)
        if room <= 0:
            return ()
        fitting = [place for place in self.all if kind in (None, place.kind)] or list(self.all)
        idle = [place for place in fitting if place not in runs]
        if idle:
            kinds = [place.kind for place in idle]
            most = max(kinds, key=kinds.count)
            alike = [place for place in idle if place.kind == most]
            return tuple(alike[: max(1, len(idle) // room)])
        fewest = min(runs[place] for place in fitting)
        level = [place for place in fitting if runs[place] == fewest]
        least = level[-1] if fewest % 2 else level[0]
        others = [place for place in fitting if place is not least]
        is_last = waiting <= len(fitting)
        if alone or runs[least] >= self.runs_each + (is_last and self.last_too):
            return ()
        alike = [place for place in others if place.kind == least.kind]
        alike.sort(key=lambda place: runs[place])
        is_left_over = waiting <= (sum(runs[place] for place in fitting) + waiting) % len(fitting)
        return (least, *alike[:1]) if is_left_over else (least,)


def find_places(settings: Settings, at_once: int | None) -> tuple[Places, Machine]:
    """What the settings give, and a GPU of it. Raises UsageError for GPUs that are not there, and
    for those of several kinds where they are not asked for as `mixed`."""
    if settings.ray is not None:
        return _on_cluster(settings, at_once)
    asked = settings.gpus
    machines = find_machines(settings.device, asked, settings.target, mixed=asked == "mixed")
    if asked is None:
        return Places(runs_each=at_once or 1), machines[0]
    places = tuple(Place(m.uuid or "", m.name, m.device) for m in machines)
    if at_once is None:
        return Places(places, RUNS_A_GPU, last_too=True), machines[0]
    return Places(places, -(-at_once // len(places)), most=at_once), machines[0]


def _on_cluster(settings: Settings, at_once: int | None) -> tuple[Places, Machine]:
    """As many places as runs, which share the lanes; by default one for each lane. Runs above wait
    for a lane: that is Ray's."""
    there = find_place(settings)
    assert there.cluster is not None
    count = settings.lanes or there.cluster.count()
    there.cluster.close()
    runs = at_once or count
    kind = there.environment.gpu or ""
    places = [Place("", kind, number, max(1, count // runs)) for number in range(runs)]
    return Places(tuple(places)), there.machines[0]


def in_turn(waiting: Sequence[int], used: Sequence[Used]) -> list[int]:
    """Who is next: whoever had least so far, in the order of the list; what a problem will cost is
    not known before."""
    return sorted(waiting, key=lambda number: (used[number].seconds, number))

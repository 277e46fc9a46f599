"""What children kernels have, in numbers fitted to measured ones.

A kernel here is a family (a way of building it) and a slack: its time is the floor, times the
family's distance from the floor, times how far it is from the family's best. A child either keeps
the family and gets another slack, or goes over to another family. Nothing is below its family's
best, and no family below the floor.

It does not know that ideas run out: the hundredth tuned form of a kernel is as likely to win as the
first. Nor does it know which finding is the right one: all directions of a parent are alike.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from pathlib import Path
from random import Random

from beamsearch.records.candidate import Direction
from beamsearch.records.record import Record
from beamsearch.records.trace import read_record

PLAYBOOK = Path(__file__).with_name("playbook.json")
MODELS = Path(__file__).with_name("models.json")
"""What is fitted to the playbook's runs, and to models'."""


class Family(Record):
    """A measured way of building a problem's kernel."""

    name: str
    distance: float
    """Logarithm of its best measured time over the floor."""
    weight: float
    """How often a first kernel's child that was built another way was of this one."""


class Start(Record):
    """A problem: its first kernel, and where that leads."""

    problem: str
    distance: float
    """Of the first kernel's own family."""
    slack: float
    """Of the first kernel in it."""
    families: list[Family]


class Landscape(Record):
    """`playbook.json` or `models.json`: every number is counted in measured steps from a parent to
    a child."""

    starts: list[Start]
    first_plans: float
    """Share of a first kernel's plans that build it another way."""
    later_plans: float
    """The same of a kernel that was already built another way."""
    follows: float
    """Share of such a plan's variants that do."""
    later_gains: float
    """Share of later changes of the family that end nearer to the floor."""
    shares: list[float]
    """What such a gain leaves of the distance to the floor, drawn from these."""
    losses: list[float]
    """What the others add to the distance."""
    first_slacks: list[float]
    """Slack of a kernel new in its family."""
    ties: float
    """Share of children in the parent's family that are as fast as the parent."""
    slacks: list[float]
    """Slack of the others."""
    failures: float
    """Share of candidates that are not correct."""
    noise: float
    """Standard deviation of a measured time, relative."""
    steps: int
    """Measured steps of recorded runs behind all this."""
    variants: int
    """Measured variants written by hand, behind the families."""


@dataclass(frozen=True)
class Spot:
    """Where a kernel stands; its own key makes its children, the same in every search."""

    key: str
    distance: float
    slack: float
    generation: int
    """Changes of the family since the first kernel."""
    family: str

    @property
    def time(self) -> float:
        """True time as a multiple of the floor."""
        return math.exp(self.distance + self.slack)


class Ground:
    """One problem of a landscape, drawn with one seed."""

    def __init__(self, landscape: Landscape, start: Start, seed: int) -> None:
        self.landscape = landscape
        self.start = start
        key = f"{seed}/{start.problem}"
        self.first = Spot(key, start.distance, start.slack, 0, "first")

    def child(self, parent: Spot, direction: Direction, variant: int) -> Spot | None:
        """The child that a variant of a plan for a parent comes to; None where it is not correct.

        The plan decides whether it is to be built another way, and is the same when it is carried
        out again; the rest is drawn for each variant.
        """
        landscape = self.landscape
        plan = f"{parent.key}/{direction.finding}.{direction.plan}"
        share = landscape.later_plans if parent.generation else landscape.first_plans
        restructures = Random(plan).random() < share
        key = f"{plan}.{variant}{'+' if direction.again else ''}"
        chance = Random(key)
        if chance.random() < landscape.failures:
            return None
        if restructures and chance.random() < landscape.follows:
            family, distance = self._another(parent, key, chance)
            slack = chance.choice(landscape.first_slacks)
            return Spot(key, distance, slack, parent.generation + 1, family)
        slack = parent.slack
        if chance.random() >= landscape.ties:
            slack = chance.choice(landscape.slacks)
        return Spot(key, parent.distance, slack, parent.generation, parent.family)

    def measured(self, spot: Spot) -> float:
        """Its time as it is measured."""
        return spot.time * math.exp(Random(f"{spot.key}!").gauss(0, self.landscape.noise))

    def _another(self, parent: Spot, key: str, chance: Random) -> tuple[str, float]:
        """Another family and its distance: of the measured ones for a first kernel, else drawn."""
        if parent.generation == 0:
            families = self.start.families
            chosen = chance.choices(families, [family.weight for family in families])[0]
            return chosen.name, chosen.distance
        if chance.random() < self.landscape.later_gains:
            return key, parent.distance * chance.choice(self.landscape.shares)
        return key, parent.distance + chance.choice(self.landscape.losses)


@functools.cache
def fitted(file: Path) -> Landscape:
    """A landscape that comes along."""
    return read_record(file, Landscape)

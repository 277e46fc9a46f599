"""What a person gives a run on its way: advice for whoever thinks, and kernels."""

from beamsearch.records.proposal import Proposal
from beamsearch.records.record import Record


class Hint(Record):
    """A person's advice."""

    number: int
    """From 1, in the order in which they were given."""
    text: str
    removed: bool = False
    """Whether it was taken away: rounds that begin later do not see it."""


class Steering(Record):
    """`steering.json`, which only people write. What stands in it when a round begins is copied to
    the round's `plan.json`, and that copy is what the round goes by."""

    hints: list[Hint] = []
    kernels: list[Proposal] = []
    """In the order in which they were given; each belongs to the first round that begins after."""

    @property
    def standing(self) -> list[Hint]:
        """The hints that were not taken away."""
        return [hint for hint in self.hints if not hint.removed]

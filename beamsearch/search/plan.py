"""What the workers of a round are sent to do."""

from __future__ import annotations

import hashlib

from beamsearch.records.candidate import Direction
from beamsearch.records.record import Record


class Origin(Record):
    """The worker of an earlier round whose plan is carried out again."""

    round: int
    worker: int


class Assignment(Record):
    """What one worker does in a round."""

    worker: int
    parent: str
    direction: Direction
    share: int = 0
    """Which of its parent's workers in this round it is, and how many these are: so that a thinker
    with one list of ideas for a kernel gives each worker others."""
    shares: int = 1
    plan_of: Origin | None = None
    """Whose plan it is, where the direction is given again; None: it makes its own."""


class Plan(Record):
    """`plan.json` of a round: who does what."""

    assignments: list[Assignment]


def worker_seed(seed: int, round_number: int, worker: int) -> int:
    """The worker's only source of chance, the same wherever and whenever it runs."""
    digest = hashlib.sha256(f"{seed}/{round_number}/{worker}".encode()).digest()
    return int.from_bytes(digest[:4], "big")

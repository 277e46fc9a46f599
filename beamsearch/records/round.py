"""What a round leaves: who won, every candidate, and the beam after it."""

from beamsearch.records.candidate import Candidate
from beamsearch.records.record import Record


class RoundRecord(Record):
    """`round_N/round.json`."""

    round: int
    candidates: list[Candidate]
    """Every candidate of the round, by worker and variant."""
    best_worker: int | None = None
    """The worker whose files stand in the round's folder; none in round 0."""
    best: str | None = None
    """The fastest correct candidate of the round."""
    win: bool = False
    """Whether the round's best is confirmed faster than everything before it."""
    beam: list[str]
    """Names of the kernels kept after the round, fastest first."""
    running_best: str | None = None
    absent: dict[str, str] = {}
    """File that does not apply -> why."""

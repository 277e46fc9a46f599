"""When a run has done enough, and why."""

from __future__ import annotations

import math
from collections.abc import Sequence

from beamsearch.records.amounts import amount
from beamsearch.records.record import Record
from beamsearch.records.round import RoundRecord
from beamsearch.records.verdict import Outcome

FRUITLESS = (Outcome.NO_CODE, Outcome.DUPLICATE)
QUIET_ROUNDS = 2
"""Rounds in a row with nothing new that end a run: after the first, a beam tries another parent."""


class Limits(Record):
    """What a run may use, and what it is to reach. None: no such limit."""

    rounds: int
    patience: int | None = None
    """Rounds in a row without a confirmed win, at least 1."""
    target_speedup: float | None = None
    """Of the confirmed best over the first kernel."""
    floor_margin: float = 0.0
    """Share of the floor that a confirmed time may lie above it to end the run; 0: none does."""
    candidates: int | None = None
    quiet: bool = True
    """Whether rounds in which nothing new was proposed end the run."""

    def is_near(self, multiple_of_floor: float | None) -> bool:
        """Whether a confirmed time is as near the floor as ends a run."""
        within = multiple_of_floor is not None and multiple_of_floor <= 1 + self.floor_margin
        return self.floor_margin > 0 and within

    def workers(self, rounds: Sequence[RoundRecord], workers: int, variants: int) -> int:
        """How many workers of the next round may start without passing the limit of candidates,
        repairs aside: how many these will be is not known."""
        if self.candidates is None:
            return workers
        return max(0, min(workers, (self.candidates - made(rounds)) // variants))


def made(rounds: Sequence[RoundRecord]) -> int:
    """Candidates so far, repairs and tuned forms too; the first kernels are not counted."""
    return sum(len(record.candidates) for record in rounds[1:])


def stop_reason(
    rounds: Sequence[RoundRecord],
    limits: Limits,
    *,
    variants: int = 1,
    speedup: float | None = None,
    modelled: bool = False,
    multiple_of_floor: float | None = None,
    out_of_time: bool = False,
) -> str | None:
    """Why the run ends here, or None.

    `speedup` is the running best's over the first kernel, of modelled times or of measured ones,
    and `multiple_of_floor` of a confirmed one. `variants` are what one worker makes.
    """
    done = len(rounds) - 1
    tilde = "~" if modelled else ""
    reasons: list[tuple[bool, str]] = [
        (
            limits.is_near(multiple_of_floor),
            f"within {limits.floor_margin:.0%} of the floor "
            f"({tilde}{multiple_of_floor or 0:.2f} times; "
            "--floor-margin)",
        ),
        (
            speedup is not None and speedup >= (limits.target_speedup or math.inf),
            f"{tilde}{speedup or 0:.2f} times as fast as the first kernel (--target-speedup)",
        ),
        (
            done >= limits.rounds,
            f"all {amount(limits.rounds, 'round')} done"
            if limits.rounds != 1
            else "the one round is done",
        ),
        (
            not limits.workers(rounds, 1, variants),
            f"{amount(made(rounds), 'candidate')} made, of at most {limits.candidates}",
        ),
        (out_of_time, "the time limit is reached"),
        (
            limits.patience is not None
            and done >= limits.patience
            and not any(record.win for record in rounds[-limits.patience :]),
            f"no confirmed win in {amount(limits.patience or 0, 'round')} (--patience)",
        ),
        (
            limits.quiet
            and done >= QUIET_ROUNDS
            and all(
                c.verdict.outcome in FRUITLESS
                for record in rounds[-QUIET_ROUNDS:]
                for c in record.candidates
            ),
            f"nothing new was proposed in {QUIET_ROUNDS} rounds",
        ),
    ]
    return next((reason for holds, reason in reasons if holds), None)

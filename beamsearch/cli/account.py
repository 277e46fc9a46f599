"""What a run spent its time on, and what tuning brought, in lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from beamsearch.records.amounts import amount
from beamsearch.records.round import tuning_gain
from beamsearch.report.numbers import clock

if TYPE_CHECKING:
    from beamsearch.llm.costs import Paid
    from beamsearch.records.round import RoundRecord
    from beamsearch.records.run import Totals
    from beamsearch.records.usage import LaneUse


def account(totals: Totals) -> list[str]:
    """Tuning and the lane, as far as there is something to tell."""
    lines = []
    tuning = totals.tuning
    if tuning is not None:
        gained = f"{tuning.gains} gained"
        if tuning.best_gain is not None:
            gained += f", at best {tuning.best_gain:.2f}x"
        lines.append(
            f"tuning: {amount(tuning.sweeps, 'sweep')} of "
            f"{amount(tuning.configurations, 'configuration')} in "
            f"{clock(tuning.seconds)}, no model asked; {gained}, {tuning.mean_gain:.2f}x on average"
        )
    if totals.lane is not None:
        lines += lane(totals.lane)
    return lines


def lane(use: LaneUse) -> list[str]:
    """The lane's busy share and what it was for, and each one's share where there are several;
    where there is none, what was waited for."""
    idle = _seconds(use.idle_s)
    if not use.busy_s or use.share is None:
        return [f"time went to: {idle}"] if idle else []
    told = f"{use.share:.0%} busy ({_seconds(use.busy_s)}); idle for: {idle or 'nothing'}"
    if not use.lanes:
        return [f"GPU lane: {told}"]
    shares = {name: own.share for name, own in use.lanes.items() if own.share is not None}
    each = ", ".join(f"{name.partition(':')[0]} {share:.0%}" for name, share in shares.items())
    return [f"{len(use.lanes)} GPU lanes: {told}; each busy: {each}"]


def in_all(paid: Paid) -> str:
    """What the models were paid."""
    of = f" (prices of {paid.prices_of})" if paid.total.cost else ""
    return f"models: {paid.total}{of}"


def swept(record: RoundRecord) -> list[str]:
    """A line for each sweep of a round."""
    return [
        f"{tuning.of} tuned: {amount(tuning.timed, 'configuration')} in {tuning.seconds:.1f} s, "
        f"{'~' if tuning.modelled else ''}{tuning_gain(tuning, record):.2f}x"
        for tuning in record.tunings
    ]


def differences(record: RoundRecord) -> list[str]:
    """How different the plans and kernels of a round are, where a model wrote several."""
    parts = {"plans": record.plans_apart, "kernels": record.kernels_apart}
    told = [f"{what} {apart:.2f}" for what, apart in parts.items() if apart is not None]
    return [f"difference (0 the same, 1 nothing in common): {', '.join(told)}"] if told else []


def _seconds(parts: dict[str, float]) -> str:
    return ", ".join(f"{what} {seconds:.0f} s" for what, seconds in parts.items() if seconds >= 0.5)

"""What a run's questions came to: its ledger, from the calls it recorded."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from beamsearch.llm.batch_files import hand_overs
from beamsearch.llm.budget import Spent, spent_on
from beamsearch.llm.model_mix import Standing
from beamsearch.llm.prices import Prices, read_prices
from beamsearch.llm.recorded import recorded_calls
from beamsearch.records.amounts import amount
from beamsearch.records.call import METERED, Call, LedgerLine
from beamsearch.records.record import Record
from beamsearch.records.round import RoundRecord
from beamsearch.records.trace import Trace, write_text

WRITING = "variants"
"""The purpose whose answer a win is credited to."""


class Sum(Record):
    """What some calls came to."""

    calls: int = 0
    retries: int = 0
    tokens_in: int = 0
    tokens_cached: int = 0
    tokens_out: int = 0
    tokens_reasoning: int = 0
    cost_usd: float = 0.0
    """Of the calls that have a cost."""
    without_cost: int = 0
    """Calls that have none."""
    by_files: int = 0
    """Calls that were answered through batch files."""
    estimated: int = 0
    """Calls whose tokens the endpoint did not tell."""
    wins: int = 0
    """Confirmed wins written by them."""

    def __str__(self) -> str:
        parts = [amount(self.calls, "call")]
        again = "retry" if self.retries == 1 else "retries"
        parts += [f"{self.retries} {again}"] if self.retries else []
        parts.append(f"{self.tokens_in} tokens in ({self.tokens_cached} cached)")
        thought = f" ({self.tokens_reasoning} reasoning)" if self.tokens_reasoning else ""
        parts.append(f"{self.tokens_out} out{thought}")
        parts += [self.cost] if self.cost else []
        parts += [f"tokens of {amount(self.estimated, 'call')} estimated"] if self.estimated else []
        return ", ".join(parts)

    @property
    def cost(self) -> str:
        """The cost as it is printed: never a number that leaves calls out without saying so. Empty
        where all were answered through batch files and none has a price: then a person may have."""
        if self.without_cost == self.calls:
            return "" if self.calls and self.by_files == self.calls else "no cost known"
        unknown = amount(self.without_cost, "call")
        more = f" and {unknown} of unknown cost" if self.without_cost else ""
        return f"${self.cost_usd:.4f}{more}"


class Point(Record):
    """After a round: what was paid so far, and the best kernel."""

    round: int
    tokens: int
    cost_usd: float | None
    """None where a call so far has no cost."""
    best: str
    speedup: float | None
    """Over the input kernel; None where it is not known."""


class Paid(Record):
    """A run's costs."""

    prices_of: str
    """Date of the price list."""
    total: Sum
    by_purpose: dict[str, Sum]
    by_model: dict[str, Sum]
    cost_per_win_usd: float | None = None
    """None without a win, or where a call has no cost."""
    hand_overs: int = 0
    """Times that batch files were handed over."""
    curve: list[Point] = []


def asked(trace: Trace) -> list[Call]:
    """The calls of a run that went to a model."""
    return [call for call in recorded_calls(trace) if call.model is not None]


def ledger(calls: Iterable[Call], prices: Prices) -> list[LedgerLine]:
    """The ledger's lines, one a call."""
    return [
        LedgerLine(
            **call.model_dump(
                include=METERED | {"purpose", "round", "worker", "subject", "attempt"}
            ),
            model=call.model or "",
            answered_by=call.author,
            cost_usd=prices.cost_usd(call.model, call),
            prices_of=str(prices.date),
        )
        for call in calls
    ]


def keep_prices(trace: Trace, file: str | None) -> None:
    """Copy the user's own price list into the folder of a run that starts: its cost is then the
    same wherever it is moved. Raises UsageError where it cannot be read."""
    if trace.run_file.is_file():
        return
    trace.prices_file.unlink(missing_ok=True)
    if file is not None:
        read_prices(file)
        write_text(trace.prices_file, Path(file).read_text())


def run_prices(trace: Trace | None, file: str | None) -> Prices:
    """What a run's tokens cost: by its own copy of the user's list, by the list itself where the
    run has not started, else by ours. Raises UsageError."""
    if trace is not None and trace.run_file.is_file() and trace.prices_file.is_file():
        file = str(trace.prices_file)
    return read_prices(file)


def save_ledger(trace: Trace, prices_file: str | None) -> None:
    """Rebuild `ledger.jsonl`, where a model was asked."""
    calls = asked(trace)
    if calls:
        lines = ledger(calls, run_prices(trace, prices_file))
        write_text(trace.ledger_file, "".join(f"{line.model_dump_json()}\n" for line in lines))


def spent(trace: Trace, prices: Prices) -> Spent:
    """What a run spent so far."""
    return sum((spent_on(call.model, call, prices) for call in asked(trace)), Spent())


def standings(trace: Trace, before: int) -> dict[str, Standing]:
    """How each model's kernels did in the rounds before one."""
    rounds = [record for record in trace.completed_rounds() if record.round < before]
    calls = [c for c in asked(trace) if c.round < before and c.purpose == WRITING]
    wins = _winners(calls, rounds)
    return {
        name: Standing(wins=wins.count(name), tries=sum(c.model == name for c in calls))
        for name in {call.model for call in calls if call.model}
    }


def paid(trace: Trace, prices: Prices, speedups: Mapping[int, float]) -> Paid:
    """What a run cost: in all, by purpose, by model, per win, and beside the speedup after each
    round."""
    calls, rounds = asked(trace), trace.completed_rounds()
    lines = ledger(calls, prices)
    wins = _winners(calls, rounds)
    whole = total(lines, sum(record.win for record in rounds))
    known = whole.calls and not whole.without_cost
    curve = []
    for record in rounds:
        so_far = total([line for line in lines if line.round <= record.round])
        curve.append(
            Point(
                round=record.round,
                tokens=so_far.tokens_in + so_far.tokens_out,
                cost_usd=None if so_far.without_cost else so_far.cost_usd,
                best=record.running_best,
                speedup=speedups.get(record.round),
            )
        )
    return Paid(
        prices_of=str(prices.date),
        total=whole,
        by_purpose={
            name: total([line for line in lines if line.purpose == name])
            for name in dict.fromkeys(line.purpose for line in lines)
        },
        by_model={
            name: total([line for line in lines if line.model == name], wins.count(name))
            for name in sorted({line.model for line in lines})
        },
        cost_per_win_usd=whole.cost_usd / whole.wins if known and whole.wins else None,
        hand_overs=len(hand_overs(trace.folder)),
        curve=curve,
    )


def other_prompts(trace: Trace) -> list[str]:
    """Of a replay: which recorded replies had been given to other prompts, in one line."""
    calls = recorded_calls(trace)
    other = [call for call in calls if call.recorded_sha256 is not None]
    if not other:
        return []
    names = [f"round {c.round} w{c.worker} {c.purpose}" for c in other[:6]]
    names += ["…"] if len(other) > len(names) else []
    return [
        f"{len(other)} of {len(calls)} prompts read differently from those that the recorded "
        f"replies were given to: {', '.join(names)}"
    ]


def _winners(calls: Sequence[Call], rounds: Iterable[RoundRecord]) -> list[str]:
    """The models that wrote the confirmed wins, by round."""
    wrote = {(c.round, c.worker): c.model or "" for c in calls if c.purpose == WRITING}
    places = [(record.round, record.best_worker) for record in rounds if record.win]
    return [wrote[place] for place in places if place in wrote]


def total(lines: Sequence[LedgerLine], wins: int = 0) -> Sum:
    """What some calls came to."""
    added = METERED - {"batch", "latency_s"} | {"cost_usd"}
    return Sum(
        calls=len(lines),
        without_cost=sum(line.cost_usd is None for line in lines),
        by_files=sum(line.batch for line in lines),
        wins=wins,
        **{name: sum(getattr(line, name) or 0 for line in lines) for name in added},
    )

"""One budget of time and money for many runs: what each may take of what is left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from beamsearch.llm.costs import run_prices, spent
from beamsearch.records.run import RunRecord
from beamsearch.records.suite import Suite
from beamsearch.records.trace import Trace
from beamsearch.settings import Settings

SHARE = 1.25
"""How many times an equal share of what is left one problem may take. Most runs end by themselves
before their limit, so more than one lets the hard ones have what the easy ones leave; and were all
to take what they may, the last of ten would still get half of an equal share, the last of a hundred
a quarter (the product of 1 - 1.25/n over the problems before it). With 2, it would get nothing."""


@dataclass(frozen=True)
class Used:
    """What a run, or a suite, took so far."""

    seconds: float = 0.0
    cost_usd: float = 0.0


def share(left: float, problems: int) -> float:
    """What the next of so many problems may take of what is left; nothing where nothing is."""
    return max(0.0, min(left, left / problems * SHARE))


def used_by_run(folder: Path) -> Used:
    """What the run in a folder took by its own records; nothing where there is none. A price that
    is not known counts as none."""
    trace = Trace(folder)
    if not trace.run_file.is_file():
        return Used()
    record = trace.run_record()
    cost = spent(trace, run_prices(trace, record.settings.prices)).cost_usd
    return Used(record.totals.seconds, cost)


def used_by_suite(suite: Suite, runs: Sequence[Used]) -> Used:
    """What a suite took: of a run, its own clock or the suite's, whichever saw more of it."""
    pairs = zip(suite.entries, runs, strict=True)
    return Used(
        sum(max(entry.seconds, run.seconds) for entry, run in pairs),
        sum(run.cost_usd for run in runs),
    )


def settings_of_run(
    suite: Suite,
    number: int,
    runs: Sequence[Used],
    *,
    promised: Mapping[int, Used] | None = None,
    at_once: int = 1,
) -> Settings | str:
    """The settings of one problem's run, with its share of what is left as its limits; or which
    limit leaves nothing. `runs`: what each run took so far. Those that are neither finished nor
    failed share. `promised`: what runs that go on may take in all. The time is there `at_once`
    times, and each run's at most once."""
    promised = promised or {}
    used = used_by_suite(suite, [promised.get(n, run) for n, run in enumerate(runs)])
    own = runs[number]
    left_out = {n for n, e in enumerate(suite.entries) if e.state in ("finished", "failed")}
    count = len({number, *range(len(runs))} - ({*left_out, *promised} - {number}))
    time_limit = suite.settings.time_limit_s
    whole_time = None if time_limit is None else time_limit * at_once
    limits: dict[str, float] = {}
    for name, flag, limit, whole, mine in (
        ("time_limit_s", "--time-limit", whole_time, used.seconds, own.seconds),
        ("max_cost", "--max-cost", suite.settings.max_cost, used.cost_usd, own.cost_usd),
    ):
        if limit is not None:
            left = share(limit - whole, count)
            if left <= 0:
                return f"nothing is left of {flag}; give a larger one"
            limits[name] = mine + left
    if time_limit is not None:
        limits["time_limit_s"] = min(limits["time_limit_s"], time_limit)
    return Settings.model_validate(suite.settings.model_dump() | limits)


def is_cut_short(record: RunRecord) -> bool:
    """Whether a run ended because its share of time or money did."""
    limit = record.settings.time_limit_s
    out_of_time = limit is not None and record.totals.seconds >= limit
    return out_of_time or "--max-cost" in (record.stop_reason or "")

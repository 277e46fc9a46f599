"""What a replay takes from the run it replays, beside its replies."""

from __future__ import annotations

from pathlib import Path

from beamsearch.records.packed import opened_run
from beamsearch.records.trace import read_record
from beamsearch.run.person import PLAN
from beamsearch.search.directions import Plan


def recorded_plan(replayed: Path, number: int) -> Plan | None:
    """Who did what in a recorded round; None where it was not begun."""
    file = opened_run(replayed).round(number) / PLAN
    return read_record(file, Plan) if file.is_file() else None


def recorded_parent(replayed: Path, number: int, worker: int) -> str | None:
    """The source that a recorded worker was given: what the patches in its reply are of, also where
    the replay gives it another parent. None where it is not known."""
    plan = recorded_plan(replayed, number)
    parents = {a.parent for a in plan.assignments if a.worker == worker} if plan else set()
    trace = opened_run(replayed)
    candidates = [c for record in trace.completed_rounds() for c in record.candidates]
    known = [c for c in candidates if c.name in parents and c.kernel_file is not None]
    return trace.kernel_source(known[0]) if known else None

"""A recorded run done again with its own replies, and what came out differently."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from beamsearch.errors import UsageError
from beamsearch.problem.problem import read_problem
from beamsearch.records.run import RunRecord
from beamsearch.run.run import run
from beamsearch.settings import PLACES, Settings

if TYPE_CHECKING:
    from beamsearch.run.observer import Observer

from beamsearch.llm.recorded import recorded_calls
from beamsearch.records.call import Call
from beamsearch.records.candidate import Candidate
from beamsearch.records.packed import opened_run
from beamsearch.records.record import Record
from beamsearch.records.trace import Trace


class Difference(Record):
    """One thing that is not as it was recorded."""

    what: str
    """`prompt`, `kernel`, `verdict`, `beam`, `best` or `winner`."""
    where: str
    """A candidate, a round, or a call."""
    recorded: str
    now: str


class Comparison(Record):
    """A replay beside the run it replays."""

    prompts: int
    """Prompts asked in both."""
    candidates: int
    """Candidates that stand in both."""
    differences: list[Difference]


def replay(
    recorded: Path, folder: Path, *, observer: Observer, places: Mapping[str, Any] | None = None
) -> RunRecord:
    """Run a recorded run again in another folder, with its replies, on what this machine has.

    `places` (`settings.PLACES`): which GPUs; the first where it does not say. Without a GPU, times
    are modelled for the recorded one. A first kernel that a model wrote is
    written again. Raises what `run` raises.
    """
    there = opened_run(recorded)
    record = there.run_record()
    if folder.resolve() == recorded.resolve():
        raise UsageError(f"{folder} is the recorded run itself; give another --output")
    problem = replace(read_problem(there.problem_file), name=record.problem)
    changed = {"llm": f"replay:{recorded.resolve()}", "rounds": _rounds(there)}
    changed |= dict.fromkeys(PLACES) | dict(places or {})
    changed |= dict.fromkeys(("time_limit_s", "max_cost", "max_tokens", "max_calls"))
    prices = Trace(recorded).prices_file  # where it still is when this run goes on
    changed["prices"] = str(prices.resolve()) if prices.is_file() else None
    if record.environment.gpu is not None:
        changed["target"] = record.environment.target
    settings = Settings.model_validate(record.settings.model_dump() | changed)
    if any(call.round == 0 for call in recorded_calls(there)) or not there.input_file.is_file():
        problem = replace(problem, path=Trace(folder).problem_file)  # beside no kernel
        return run(problem, settings, folder, kernel=None, observer=observer)
    return run(problem, settings, folder, kernel=there.input_file, observer=observer)


def _rounds(recorded: Trace) -> int:
    """The last round that a replay takes: the last completed one; the first at least."""
    return max(1, len(recorded.completed_rounds()) - 1)


def compare(recorded: Trace, now: Trace) -> Comparison:
    """What the replay did otherwise, in the order of the run."""
    last = _rounds(recorded)
    left, right = _calls(recorded, last), _calls(now, last)
    found = [
        Difference(what="prompt", where=where, recorded=a, now=b)
        for where in sorted(left.keys() | right.keys())
        if (a := left.get(where, "not asked")) != (b := right.get(where, "not asked"))
    ]
    before, after = _candidates(recorded), _candidates(now)
    for name in [*before, *(name for name in after if name not in before)]:
        found += _candidate_differences(recorded, before.get(name), now, after.get(name))
    for one, other in zip(recorded.completed_rounds(), now.completed_rounds(), strict=False):
        where = f"round {one.round}"
        for what, was, now_is in (
            ("beam", " ".join(one.beam), " ".join(other.beam)),
            ("best", one.running_best, other.running_best),
        ):
            if was != now_is:
                found.append(Difference(what=what, where=where, recorded=was, now=now_is))
    won, wins = recorded.run_record().best, now.run_record().best
    if won != wins:
        found.append(Difference(what="winner", where="run", recorded=str(won), now=str(wins)))
    return Comparison(
        prompts=len(left.keys() & right.keys()),
        candidates=len(before.keys() & after.keys()),
        differences=found,
    )


def _calls(trace: Trace, last: int) -> dict[str, str]:
    """Each call up to a round, and the hash of its prompt."""
    calls = [call for call in recorded_calls(trace) if call.round <= last]
    return {_called(call): call.prompt_sha256[:12] for call in calls}


def _called(call: Call) -> str:
    subject = f" {call.subject}" if call.subject else ""
    again = f" (attempt {call.attempt + 1})" if call.attempt else ""
    return f"round {call.round} w{call.worker} {call.purpose}{subject}{again}"


def _candidates(trace: Trace) -> dict[str, Candidate]:
    return {c.name: c for record in trace.completed_rounds() for c in record.candidates}


def _candidate_differences(
    recorded: Trace, before: Candidate | None, now: Trace, after: Candidate | None
) -> list[Difference]:
    if before is None or after is None:
        there = before or after
        assert there is not None
        was = before.verdict.outcome.value if before else "absent"
        now_is = after.verdict.outcome.value if after else "absent"
        return [Difference(what="kernel", where=there.name, recorded=was, now=now_is)]
    pairs = (
        ("kernel", _source_hash(recorded, before), _source_hash(now, after)),
        ("verdict", before.verdict.outcome.value, after.verdict.outcome.value),
    )
    return [
        Difference(what=what, where=before.name, recorded=was, now=now_is)
        for what, was, now_is in pairs
        if was != now_is
    ]


def _source_hash(trace: Trace, candidate: Candidate) -> str:
    """Of the source as it stands, comments and all."""
    if candidate.kernel_file is None:
        return "no code"
    source = (trace.folder / candidate.kernel_file).read_bytes()
    return hashlib.sha256(source).hexdigest()[:12]

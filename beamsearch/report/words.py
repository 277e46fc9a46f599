"""What a run's page says in words and numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from beamsearch.records.amounts import amount
from beamsearch.records.baselines import BASELINES, called
from beamsearch.records.candidate import Candidate
from beamsearch.records.job import Comparison
from beamsearch.records.measurement import Measurement
from beamsearch.records.ratios import comparable_times
from beamsearch.records.round import RoundRecord
from beamsearch.records.run import RunRecord
from beamsearch.records.trace import Trace, read_record
from beamsearch.report.numbers import clock, progress, sign
from beamsearch.report.run_data import RunData
from beamsearch.search.pairs import MODELLED_NOISE, NOISE, TIE, paired

WAITED_S = 60
"""Seconds that a run was not worked on from which that is told."""


def spread(time: Measurement | None) -> str:
    """A time with its 20th and 80th percentile: `0.5374 ms [0.5364, 0.5383]`."""
    if time is None:
        return "not timed"
    if time.p20_ms is None or time.p80_ms is None:
        return str(time)
    return f"{time} [{time.p20_ms:.4g}, {time.p80_ms:.4g}]"


def timed(run: RunData, candidate: Candidate) -> str:
    """A kernel's time that its ratios rest on, and beside which kernel where that is not its
    round's."""
    if (turns := run.in_turns.get(candidate.name)) is None:
        return spread(candidate.measurement)
    return f"{spread(turns.time)} in turns with {turns.beside}"


def both_times(run: RunData, candidate: Candidate) -> str:
    """As `timed`, behind the time that it was judged with, where that is another."""
    if candidate.name not in run.in_turns:
        return spread(candidate.measurement)
    judged = f"{spread(candidate.measurement)} as it was judged"
    return f"{judged}; {timed(run, candidate)}, which its ratios rest on"


def headline(run: RunData) -> list[tuple[str, str]]:
    """The winner's speedups and its multiple of the floor, each with what it is of."""
    now = progress(run.record)
    about = sign(now.time)
    over = {called(name): now.over[name] for name in BASELINES if name in now.over}
    if now.over_input is not None:
        over["the input kernel"] = now.over_input
    told = []
    for name, value in over.items():
        than, times = ("faster", value) if round(value, 2) >= 1 else ("slower", 1 / value)
        told.append((f"{about}{times:.2f}x", f"{than} than {name}"))
    if now.of_floor is not None:
        told.append((f"{about}{now.of_floor:.2f}x", "the time of the floor"))
    return told


def sentence(run: RunData) -> str:
    """What was made, of what, and where."""
    record, where = run.record, run.record.environment
    scaled = f" (scaled to {record.scaled})" if record.scaled else ""
    machine = f"measured on {where.gpu}" if where.gpu else f"modelled for {where.target}, no GPU"
    confirmed = run.record.confirmation
    time = spread(confirmed.winner) if confirmed else timed(run, run.winner)
    return (
        f"{run.winner.name} computes {record.problem}{scaled} in {record.problem_dtype} in "
        f"{time}, {machine}."
    )


def _from_first_to_last(record: RunRecord) -> float:
    """Seconds between the beginning of a run and its last step, whatever it waited for between; of
    its work alone where an earlier version recorded no more."""
    if record.began is None or record.saved is None:
        return record.totals.seconds
    return (record.saved - record.began).total_seconds()


def cost(run: RunData) -> str:
    """Time, calls, tokens and dollars."""
    totals = run.record.totals
    told = [
        f"{amount(totals.candidates, 'candidate')} beside the first kernels, in "
        f"{clock(totals.seconds)} of work"
    ]
    if run.after_rounds_s is not None:
        told[0] += f", {clock(run.after_rounds_s)} of it for the final timing and examination"
    if any(line.batch for line in run.ledger):
        told[0] += "; the time that a model took to answer through batch files is not in it"
    whole = _from_first_to_last(run.record)
    if whole - totals.seconds > WAITED_S:
        told[0] += f"; {clock(whole)} from beginning to end, with all that it waited for"
    if not run.ledger:
        return f"{told[0]}; no model was asked"
    about = "about " if any(line.estimated for line in run.ledger) else ""
    models = ", ".join(dict.fromkeys(line.model for line in run.ledger))
    told.append(
        f"{amount(totals.model_calls, 'call')} to {models}, "
        f"{about}{totals.tokens_in:,} tokens in and {totals.tokens_out:,} out"
    )
    known = [line.cost_usd for line in run.ledger if line.cost_usd is not None]
    missing = len(run.ledger) - len(known)
    if known:
        told.append(f"{about}${math.fsum(known):.4f} at the prices of {run.ledger[0].prices_of}")
    if missing and (known or not all(line.batch for line in run.ledger)):
        told.append(f"{amount(missing, 'call')} without a known price")
    return "; ".join(told)


def beside(trace: Trace, item: RoundRecord, by_name: Mapping[str, Candidate]) -> list[str]:
    """Why the round's best is a win or none: the two timed in turn, where that was done; else
    where its time reads as no slower than that of the best before it."""
    path = trace.round(item.round) / "confirmation.json"
    if not path.is_file():
        if item.win or item.best in (None, item.running_best):
            return []
        pair = [by_name[name] for name in (item.best, item.running_best) if name]
        own, before = comparable_times(trace, pair).values()
        if own > before and pair[0].time_ms > pair[1].time_ms:
            return []
        modelled = pair[0].measurement is not None and pair[0].measurement.source == "modelled"
        noise = MODELLED_NOISE if modelled else NOISE
        return [
            f"{item.best} has {own / before:.3f} of the time of {item.running_best}, by their "
            f"ratios to the first kernel; no win, which takes {noise:.0%}"
        ]
    comparison = read_record(path, Comparison)
    turns, times = comparison.turns, comparison.measurements
    other = next((n for n in turns if n in by_name and by_name[n].round < item.round), None)
    if item.best not in turns or other is None or len(turns[item.best]) != len(turns[other]):
        return []
    found = paired(turns[item.best], turns[other])
    verdict: str = found.verdict
    if verdict == "tie" and not found.low <= 1 <= found.high:
        verdict = f"a tie, since a win takes a difference of {TIE:.0%}"
    return [
        f"{item.best} beside {other}, taking turns: {found.median:.3f} of its time "
        f"({found.low:.3f} to {found.high:.3f}; {times[item.best]} and {times[other]}): {verdict}"
    ]


def tuned(run: RunData) -> str:
    """What tuning came to."""
    totals = run.record.totals.tuning
    if totals is None:
        is_on = run.record.settings.configurations(not run.modelled)
        return "nothing" if is_on else "nothing (switched off)"
    gained = "nothing gained"
    if totals.best_gain is not None:
        gained = f"{totals.gains} gained, at best {totals.best_gain:.2f}x"
    return (
        f"{amount(totals.sweeps, 'kernel')}, {amount(totals.configurations, 'configuration')} in "
        f"{clock(totals.seconds)}, no model asked; {gained}"
    )


def different_words(candidates: Sequence[Candidate]) -> dict[str, str]:
    """Descriptions of siblings without the clauses that all of them share."""
    clauses = {c.name: c.description.split("; ") for c in candidates}
    shared = set.intersection(*map(set, clauses.values())) if len(candidates) > 1 else set()
    told = {}
    for name, own in clauses.items():
        rest = [clause for clause in own if clause not in shared]
        told[name] = ("… " if len(rest) < len(own) else "") + "; ".join(rest or own)
    return told

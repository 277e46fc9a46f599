"""What a run's page says in words and numbers."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from textwrap import shorten

from beamsearch.records.amounts import amount
from beamsearch.records.baselines import BASELINES, called
from beamsearch.records.candidate import OPEN, Candidate
from beamsearch.records.job import Comparison
from beamsearch.records.measurement import Measurement
from beamsearch.records.ratios import comparable_times
from beamsearch.records.round import RoundRecord, tuning_gain
from beamsearch.records.run import RunRecord
from beamsearch.records.trace import Trace, read_record
from beamsearch.report.counters import changed
from beamsearch.report.numbers import clock, configuration, progress, sign
from beamsearch.report.run_data import INPUT, RunData
from beamsearch.search.pairs import MODELLED_NOISE, NOISE, paired
from kernel_profiling.profile import Finding

LONGEST = 200
"""Letters of why a configuration failed."""
WAITED_S = 60
"""Seconds that a run was not worked on from which that is told."""
CLEAR = 1.1
"""The least bound of a finding by whose coming or going a kernel is told from another."""


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
    told = [f"{amount(totals.candidates, 'candidate')} in {clock(totals.seconds)} of work"]
    if run.after_rounds_s is not None:
        told[0] += f", {clock(run.after_rounds_s)} of it for the final timing and examination"
    if any(line.batch for line in run.ledger):
        told[0] += ", without the time that a model's answers through batch files took"
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
    return [
        f"{item.best} beside {other}, taking turns: {found.median:.3f} of its time "
        f"({found.low:.3f} to {found.high:.3f}; {times[item.best]} and {times[other]}): "
        f"{found.verdict}"
    ]


def outcome(run: RunData, candidate: Candidate) -> str:
    """What came of a candidate, in a few words."""
    verdict = candidate.verdict
    if not verdict.correct:
        what = str(verdict.outcome).replace("_", " ")
        stage = str(verdict.stage or what).replace("_", " ")
        return what if what.startswith(stage) else f"{what} at {stage}"
    change = run.against(candidate, candidate.parent)
    if change is None:
        return "correct"
    return "ties with its parent" if change.word == "tie" else f"{change.word} than its parent"


def failures(run: RunData) -> list[tuple[str, list[Candidate]]]:
    """What is not correct, by outcome and stage, the most frequent first."""
    found: dict[str, list[Candidate]] = defaultdict(list)
    for candidate in run.candidates.values():
        if not candidate.verdict.correct:
            found[outcome(run, candidate)].append(candidate)
    return sorted(found.items(), key=lambda item: -len(item[1]))


def in_vain(run: RunData) -> list[list[Candidate]]:
    """The kernels of each worker that made none faster than its parent, in the order of rounds."""

    def gained(candidate: Candidate) -> bool:
        change = run.against(candidate, candidate.parent)
        return change is not None and change.word == "faster"

    return [own for own in run.workers if not any(map(gained, own))]


def lost(run: RunData) -> list[tuple[Candidate, list[Candidate]]]:
    """The best of a round, and the kernels of each worker that gained on its parent but is slower
    than that by more than the noise."""
    vain, found = {own[0].name for own in in_vain(run)}, []
    bests = {record.round: record.best for record in run.rounds}
    for own in run.workers:
        best = bests[own[0].round]
        changes = [run.against(c, best) for c in own]
        words = {change.word for change in changes if change}
        if best is not None and own[0].name not in vain and words == {"slower"}:
            found.append((run.candidates[best], own))
    return found


def behind_a_sibling(run: RunData) -> list[Candidate]:
    """Kernels slower than their parent, of workers of which another kernel gained on it."""
    vain = {c.name for own in in_vain(run) for c in own}
    lost_too = {c.name for _, own in lost(run) for c in own}
    return [
        c
        for own in run.workers
        for c in own
        if c.name not in vain | lost_too
        and (change := run.against(c, c.parent)) is not None
        and change.word == "slower"
    ]


def swept(run: RunData) -> list[str]:
    """A line for each kernel that was tuned: what was tried, and what that gained."""
    told = []
    for record in run.rounds:
        for tuning in record.tunings:
            timed = [form.setting for form in tuning.forms[1:] if form.times_ms]
            failed: dict[str, list[str]] = defaultdict(list)
            for form in tuning.forms[1:]:
                if not form.times_ms:
                    failed[form.reason].append(form.setting)
            gain = tuning_gain(tuning, record)
            about = "~" if tuning.modelled else ""
            gained = f"{about}{gain:.2f}x faster" if gain > 1 else "nothing gained"
            own = run.candidates[tuning.of].measurement
            itself = ", ".join(own.configs if own else {})
            line = f"{tuning.of}, {amount(len(timed), 'configuration')} timed"
            line += f", none of {itself}, which it autotunes itself" if itself else ""
            line += f": {', '.join(timed)}" if timed else ""
            for why, settings in failed.items():
                line += f"; {', '.join(settings)} not: {shorten(why, LONGEST, placeholder=' …')}"
            told.append(f"{line}; {gained}")
    return told


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


def directions(run: RunData) -> list[tuple[str, Counter[str], str]]:
    """Direction -> what came of its correct kernels against their parents, and which of them gained
    most on its own."""
    found: dict[str, list[Candidate]] = defaultdict(list)
    for candidate in run.candidates.values():
        if candidate.direction is not None:
            found[candidate.direction.finding.replace("_", " ")].append(candidate)
    rows = []
    for direction, some in found.items():
        counts = Counter(
            change.word if (change := run.against(c, c.parent)) else "failed" for c in some
        )
        gains = {c.name: change.speedup for c in some if (change := run.against(c, c.parent))}
        rows.append((direction, counts, max(gains, key=gains.__getitem__, default="")))
    return rows


def aim(run: RunData, candidate: Candidate) -> str:
    """What its worker was sent after: the direction, and what its parent's profile says of it."""
    direction = candidate.direction
    if direction is None:
        return "nothing in particular"
    told = str(direction).replace("_", " ").replace(OPEN, "open: no finding was given", 1)
    parent = run.candidates.get(candidate.parent or "")
    for finding in run.findings(parent) if parent else []:
        if direction.finding in (finding.kind, *finding.seen_as):
            return f"{told} ({finding.title[0].lower()}{finding.title[1:]})"
    return told


def different_words(candidates: Sequence[Candidate]) -> dict[str, str]:
    """Descriptions of siblings without the clauses that all of them share."""
    clauses = {c.name: c.description.split("; ") for c in candidates}
    shared = set.intersection(*map(set, clauses.values())) if len(candidates) > 1 else set()
    told = {}
    for name, own in clauses.items():
        rest = [clause for clause in own if clause not in shared]
        told[name] = ("… " if len(rest) < len(own) else "") + "; ".join(rest or own)
    return told


def only_in(some: Sequence[Finding], others: Sequence[Finding]) -> list[str]:
    """Findings that the others do not have, with their bounds. Smaller ones than `CLEAR` come and
    go with the threshold that lists them, so they say nothing of a change."""
    known = {kind for finding in others for kind in (finding.kind, *finding.seen_as)}
    return [
        f"{finding.title} (up to {finding.gain_bound:.2f}x)"
        for finding in some
        if finding.kind not in known and finding.gain_bound >= CLEAR
    ]


def step(run: RunData, candidate: Candidate) -> dict[str, object]:
    """One step of a lineage: what it changed and what it gained."""
    origin = run.candidates.get(run.origin(candidate) or "")
    gone: list[str] = []
    come: list[str] = []
    moved: list[str] = []
    if origin is not None and run.profile(origin.name) and run.profile(candidate.name):
        moved = changed(run.profile(origin.name), run.profile(candidate.name), run.about)
        before, after = run.findings(origin), run.findings(candidate)
        gone, come = only_in(before, after), only_in(after, before)
    return {
        "candidate": candidate,
        "origin": origin,
        "change": run.against(candidate, origin.name if origin else None),
        "cause": run.plan(candidate)["cause"],
        "chosen": configuration(candidate.measurement),
        "moved": moved,
        "gone": gone,
        "come": come,
        "reflection": run.reflection(candidate),
        "is_input": candidate.name == INPUT,
    }

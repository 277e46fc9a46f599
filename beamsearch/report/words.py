"""What a run's page says in words and numbers."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from beamsearch.records.baselines import BASELINES, called
from beamsearch.records.candidate import Candidate
from beamsearch.records.job import Comparison
from beamsearch.records.measurement import Measurement
from beamsearch.records.ratios import comparable_times
from beamsearch.records.round import RoundRecord
from beamsearch.records.trace import Trace, read_record
from beamsearch.report.numbers import clock, progress, sign
from beamsearch.report.run_data import INPUT, RunData
from beamsearch.search.pairs import MODELLED_NOISE, NOISE, paired
from kernel_profiling.ncu.metrics import METRICS
from kernel_profiling.profile import Profile

COUNTERS = (
    "registers",
    "spill_bytes",
    "shared_bytes",
    "occupancy",
    "load_bits",
    "store_bits",
    "matrix_instructions",
)


def spread(time: Measurement | None) -> str:
    """A time with its 20th and 80th percentile: `0.5374 ms [0.5364, 0.5383]`."""
    if time is None:
        return "not timed"
    if time.p20_ms is None or time.p80_ms is None:
        return str(time)
    return f"{time} [{time.p20_ms:.4g}, {time.p80_ms:.4g}]"


def headline(run: RunData) -> list[tuple[str, str]]:
    """The winner's speedups and its multiple of the floor, each with what it is of."""
    now = progress(run.record)
    about = sign(now.time)
    over = {called(name): now.over[name] for name in BASELINES if name in now.over}
    if now.over_input is not None:
        over["the input kernel"] = now.over_input
    told = [(f"{about}{value:.2f}x", f"faster than {name}") for name, value in over.items()]
    if now.of_floor is not None:
        told.append(
            (f"{about}{now.of_floor:.2f}x", "the time of the floor, the least there can be")
        )
    return told


def sentence(run: RunData) -> str:
    """What was made, of what, and where."""
    record, where = run.record, run.record.environment
    scaled = f" (scaled to {record.scaled})" if record.scaled else ""
    machine = f"measured on {where.gpu}" if where.gpu else f"modelled for {where.target}, no GPU"
    time = run.record.confirmation.winner if run.record.confirmation else run.winner.measurement
    return (
        f"{run.winner.name} computes {record.problem}{scaled} in {record.problem_dtype} in "
        f"{spread(time)}, {machine}."
    )


def cost(run: RunData) -> str:
    """Time, calls, tokens and dollars."""
    totals = run.record.totals
    told = [f"{totals.candidates} candidates in {clock(totals.seconds)}"]
    if any(line.batch for line in run.ledger):
        told[0] += ", without the time that answers through batch files took"
    if not run.ledger:
        return f"{told[0]}; no model was asked"
    about = "about " if any(line.estimated for line in run.ledger) else ""
    told.append(
        f"{totals.model_calls} calls to {', '.join(dict.fromkeys(c.model for c in run.ledger))}, "
        f"{about}{totals.tokens_in:,} tokens in and {totals.tokens_out:,} out"
    )
    known = [line.cost_usd for line in run.ledger if line.cost_usd is not None]
    missing = len(run.ledger) - len(known)
    if known:
        told.append(f"{about}${math.fsum(known):.4f} at the prices of {run.ledger[0].prices_of}")
    if missing:
        told.append(f"{missing} calls have no known price")
    return "; ".join(told)


def verified(run: RunData) -> list[str]:
    """What was looked at before the winner was believed, a line a stage."""
    verdict = run.examination
    stages: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for check in verdict.checks:
        failed = "" if check.passed else "FAILED, which is only reported: "
        stages[str(check.stage)][failed + check.message].append(check.name)
    told = []
    for stage, messages in stages.items():
        parts = [
            f"{', '.join(names)}{f' ({message})' if message else ''}"
            for message, names in messages.items()
        ]
        told.append(f"{stage.replace('_', ' ')}: {'; '.join(parts)}")
    told += [f"not checked: {text}" for text in verdict.not_checked]
    return told


def timed_how(run: RunData) -> list[str]:
    """What a measured time is the time of; nothing where times are modelled."""
    confirmed = run.record.confirmation
    time = confirmed.winner if confirmed else run.winner.measurement
    if time is None or time.source == "modelled":
        return []
    way = ", by its CUDA graph" if time.graph else ", launched from Python behind other work"
    way = "" if time.graph is None else way  # old records do not say
    told = (
        f"A time is the median of single calls{way}, between two events on the GPU. The L2 is "
        "emptied and every input has new values before each call; results of calls that nobody can "
        "foresee are compared."
    )
    first = confirmed.input if confirmed else run.candidates[INPUT].measurement
    known = [(run.winner.name, time), ("the input kernel", first)]
    python = [f"{n} {m.host_us:.0f} us" for n, m in known if m is not None and m.host_us]
    if python:
        told += (
            f" Python's own part of a plain call is not in it: {', '.join(python)}. Where that is "
            "longer than the time, calls without a graph take as long as Python does."
        )
    return [told]


def belief(run: RunData) -> list[str]:
    """Why the number may be believed, and how far."""
    confirmed, winner = run.record.confirmation, run.winner
    told = timed_how(run)
    if confirmed is not None:
        time = confirmed.winner
        told.append(
            f"At the end the winner was timed again, taking turns with the baselines in one visit "
            f"to one GPU: {spread(time)} over {time.count} calls. Speedups are of this visit."
        )
        if winner.measurement is not None and winner.measurement.visit != time.visit:
            then = run.times.get(winner.name)
            now = time.time_ms / confirmed.input.time_ms
            ratio = (
                f"; over the input kernel {1 / then:.3f}x then, {1 / now:.3f}x now" if then else ""
            )
            told.append(
                f"In its round it took {spread(winner.measurement)}. That was another visit"
                f"{_other_gpu(winner.measurement, time)}, so the two times are not compared{ratio}."
            )
    elif run.modelled:
        told.append(
            "Nothing was measured: times come from a model of the GPU and carry ~. A difference "
            f"under {run.noise:.0%} is a tie, and none of them is evidence of a speedup."
        )
    else:
        told.append(
            "The run has not come to its end: the winner was not timed beside the baselines yet."
        )
        known = [(name, getattr(run.record.baselines, name)) for name in BASELINES]
        times = [f"{called(name)} {spread(time)}" for name, time in known if time is not None]
        told += [f"As the run began, the baselines took: {', '.join(times)}."] if times else []
    ties = tied(run)
    if ties:
        told.append(
            f"Within the noise of {run.noise:.0%}, these are as fast as the winner: "
            f"{', '.join(ties)}."
        )
    if run.record.floor is not None and run.record.floor.corrected:
        told.append(f"The floor was corrected: {run.record.floor.corrected}.")
    return told


def _other_gpu(one: Measurement, other: Measurement) -> str:
    return " to another GPU" if one.gpu_uuid != other.gpu_uuid else ""


def tied(run: RunData) -> list[str]:
    """Names of other kernels whose time differs from the winner's by no more than the noise."""
    names = []
    for name, candidate in run.candidates.items():
        change = run.against(candidate, run.winner.name)
        if name != run.winner.name and change is not None and change.word == "tie":
            names.append(name)
    return names


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
            f"{item.best} beside {item.running_best}: {own / before:.3f} of its time, by their "
            f"ratios to the first kernel; no win, which takes {noise:.0%}"
        ]
    turns = read_record(path, Comparison).turns
    other = next((n for n in turns if n in by_name and by_name[n].round < item.round), None)
    if item.best not in turns or other is None or len(turns[item.best]) != len(turns[other]):
        return []
    found = paired(turns[item.best], turns[other])
    return [
        f"{item.best} beside {other}, taking turns: {found.median:.3f} of its time "
        f"({found.low:.3f} to {found.high:.3f}): {found.verdict}"
    ]


def outcome(run: RunData, candidate: Candidate) -> str:
    """What came of a candidate, in a few words."""
    verdict = candidate.verdict
    if not verdict.correct:
        at = f" at {verdict.stage}" if verdict.stage else ""
        return f"{str(verdict.outcome).replace('_', ' ')}{at.replace('_', ' ')}"
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


def directions(run: RunData) -> list[tuple[str, Counter[str], str]]:
    """Direction -> what came of its correct kernels against their parents, and the best of them."""
    found: dict[str, list[Candidate]] = defaultdict(list)
    for candidate in run.candidates.values():
        if candidate.direction is not None:
            found[candidate.direction.finding.replace("_", " ")].append(candidate)
    rows = []
    for direction, some in found.items():
        counts = Counter(
            change.word if (change := run.against(c, c.parent)) else "failed" for c in some
        )
        timed = [c for c in some if c.name in run.times]
        rows.append(
            (direction, counts, min(timed, key=lambda c: run.times[c.name]).name if timed else "")
        )
    return rows


def different_words(candidates: Sequence[Candidate]) -> dict[str, str]:
    """Descriptions of siblings without the clauses that all of them share."""
    clauses = {c.name: c.description.split("; ") for c in candidates}
    shared = set.intersection(*map(set, clauses.values())) if len(candidates) > 1 else set()
    told = {}
    for name, own in clauses.items():
        rest = [clause for clause in own if clause not in shared]
        told[name] = ("… " if len(rest) < len(own) else "") + "; ".join(rest or own)
    return told


def counters(before: Profile | None, after: Profile | None) -> list[tuple[str, str, str, str, str]]:
    """Name, unit and meaning, and each value of the two kernels' largest launches, and the ratio;
    traffic is of the whole call."""
    rows = []
    for level in ("dram", "l2", "l1", "registers"):
        pair = [p.traffic.get(level) if p else None for p in (before, after)]
        rows.append(_counter(f"traffic at {level}", "byte: moved in the whole call", pair))
    largest = [
        max(p.launches, key=lambda launch: launch.share or 0) if p and p.launches else None
        for p in (before, after)
    ]
    for name in COUNTERS:
        pair = [getattr(launch, name) if launch else None for launch in largest]
        rows.append(_counter(name.replace("_", " "), "of the largest launch", pair))
    for metric in METRICS:
        pair = [launch.metrics.get(metric.name) if launch else None for launch in largest]
        told = f"{metric.unit}: {metric.meaning}"
        rows.append(_counter(metric.name.replace("_", " "), told, pair))
    return [row for row in rows if row[2] or row[3]]


def _counter(name: str, told: str, pair: Sequence[float | None]) -> tuple[str, str, str, str, str]:
    texts = ["" if value is None else f"{value:.4g}" for value in pair]
    before, after = pair
    ratio = f"{after / before:.3g}" if before and after is not None else ""
    return name, told, texts[0], texts[1], ratio


def step(run: RunData, candidate: Candidate) -> dict[str, object]:
    """One step of a lineage: what it changed and what it gained."""
    origin = run.candidates.get(run.origin(candidate) or "")
    gone: list[str] = []
    come: list[str] = []
    if origin is not None and run.profile(origin.name) and run.profile(candidate.name):
        before = {finding.kind: finding.title for finding in run.findings(origin)}
        after = {finding.kind: finding.title for finding in run.findings(candidate)}
        gone = [title for kind, title in before.items() if kind not in after]
        come = [title for kind, title in after.items() if kind not in before]
    return {
        "candidate": candidate,
        "origin": origin,
        "change": run.against(candidate, origin.name if origin else None),
        "cause": run.plan(candidate)["cause"],
        "gone": gone,
        "come": come,
        "reflection": run.reflection(candidate),
        "is_input": candidate.name == INPUT,
    }

"""What a run comes to: files derived from its records, rebuilt each time and never appended to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from beamsearch.judge.sandbox.clean_environment import remove
from beamsearch.llm.costs import asked
from beamsearch.records.candidate import Candidate
from beamsearch.records.measurement import Measurement
from beamsearch.records.ratios import ranked_time
from beamsearch.records.round import BenchmarkResults, Result, RoundRecord, tuning_gain
from beamsearch.records.run import RoundSummary, Totals
from beamsearch.records.trace import WORKER_FILES, Trace, read_record, write_record, write_text
from beamsearch.records.tuning import TuningTotals
from beamsearch.records.usage import LaneUse
from beamsearch.run.review import score
from kernel_profiling.profile import Floor

COLUMNS = (
    "candidate",
    "round",
    "worker",
    "parent",
    "author",
    "verdict",
    "ms",
    "source",
    "speedup",
    "description",
)


def results_tsv(candidates: Sequence[Candidate], times: Mapping[str, float]) -> str:
    """The plain ledger: a line a candidate. `speedup` is over the input kernel; `ms` is empty
    where there is no time, and starts with `~` where it is modelled."""
    lines = ["\t".join(COLUMNS)]
    for c in candidates:
        time = str(c.measurement).removesuffix(" ms") if c.measurement else ""
        speedup = f"{1 / times[c.name]:.4g}" if c.name in times else ""
        row = (
            c.name,
            str(c.round),
            "" if c.worker is None else str(c.worker),
            c.parent or "",
            c.author,
            c.verdict.outcome.value,
            time,
            c.measurement.source if c.measurement else "",
            speedup,
            " ".join(c.description.split()),
        )
        lines.append("\t".join(row))
    return "\n".join(lines) + "\n"


def find_candidate(rounds: Sequence[RoundRecord], name: str | None) -> Candidate:
    """The candidate of that name. Raises StopIteration where there is none."""
    return next(c for record in rounds for c in record.candidates if c.name == name)


def multiple_of_floor(measurement: Measurement | None, floor: Floor | None) -> float | None:
    """How far a measured time is from the floor; None for a modelled time or no floor."""
    if measurement is None or measurement.source != "measured":
        return None
    return distance_to_floor(measurement, floor)


def distance_to_floor(measurement: Measurement | None, floor: Floor | None) -> float | None:
    """Time over the floor, both measured or both modelled: no modelled time is below its floor,
    so that at the floor a run without a GPU can win no more. None where one is missing."""
    if measurement is None or floor is None:
        return None
    return measurement.time_ms / floor.time_ms


def summarise(
    trace: Trace, rounds: Sequence[RoundRecord], times: Mapping[str, float]
) -> tuple[list[RoundSummary], str | None]:
    """Every round in one line, and the name of the running best."""
    by_name = {c.name: c for record in rounds for c in record.candidates}
    summaries = []
    for record in rounds:
        best = by_name[record.running_best]
        summaries.append(
            RoundSummary(
                round=record.round,
                best=best.name,
                best_time=ranked_time(trace, by_name.values(), best),
                speedup=1 / times[best.name],
                correct=sum(c.verdict.correct for c in record.candidates),
                candidates=len(record.candidates),
            )
        )
    return summaries, rounds[-1].running_best


def totals(
    trace: Trace, rounds: Sequence[RoundRecord], seconds: float, lane: LaneUse | None = None
) -> Totals:
    """What the run did so far; the input kernel is not counted as a candidate."""
    candidates = [c for record in rounds[1:] for c in record.candidates]
    calls = asked(trace)
    return Totals(
        candidates=len(candidates),
        correct=sum(c.verdict.correct for c in candidates),
        wins=sum(record.win for record in rounds),
        model_calls=len(calls),
        tokens_in=sum(call.tokens_in or 0 for call in calls),
        tokens_out=sum(call.tokens_out or 0 for call in calls),
        seconds=seconds,
        review=score(candidates) if any(c.forecast for c in candidates) else None,
        tuning=tuning_totals(rounds),
        lane=lane,
    )


def tuning_totals(rounds: Sequence[RoundRecord]) -> TuningTotals | None:
    """What tuning cost and brought; None where nothing was tuned."""
    sweeps = [(tuning, record) for record in rounds for tuning in record.tunings]
    if not sweeps:
        return None
    gains = [tuning_gain(tuning, record) for tuning, record in sweeps]
    gained = [gain for gain in gains if gain > 1]
    return TuningTotals(
        sweeps=len(sweeps),
        configurations=sum(tuning.timed for tuning, _ in sweeps),
        judged=sum(c.tuned_from is not None for record in rounds for c in record.candidates),
        gains=len(gained),
        best_gain=max(gained, default=None),
        mean_gain=math.prod(gains) ** (1 / len(gains)),
        seconds=round(sum(tuning.seconds for tuning, _ in sweeps), 3),
    )


def promote(trace: Trace, number: int, worker: int | None) -> None:
    """Copy the best worker's files, or those of a person's kernel, to the round's folder."""
    for name in WORKER_FILES:
        source = trace.worker(number, worker) / name
        if source.is_file():
            write_text(trace.round(number) / name, source.read_text())


def absent_files(trace: Trace, number: int, best: Candidate | None) -> dict[str, str]:
    """Each of a round's files that is not there, and why."""
    why = "no candidate of the round is correct"
    if best is not None:
        why = "the best worker left none" if best.worker is not None else "a person gave the best"
    folder = trace.round(number)
    return {name: why for name in WORKER_FILES if not (folder / name).is_file()}


def round_results(
    trace: Trace,
    record: RoundRecord,
    everyone: Mapping[str, Candidate],
    times: Mapping[str, float],
    floor: Floor | None,
) -> None:
    """`benchmark_results.json` of a round: its best worker's results and the running best."""
    folder = trace.worker(record.round, record.best_worker)
    own = read_record(folder / "benchmark_results.json", BenchmarkResults)
    running = everyone[record.running_best]
    time = ranked_time(trace, everyone.values(), running)
    results = own.with_values(
        results=[_result(c, times) for c in record.candidates],
        running_best=running.name,
        running_best_time=time,
        speedup_over_input=1 / times[running.name],
        multiple_of_floor=multiple_of_floor(time, floor),
    )
    write_record(trace.round(record.round) / "benchmark_results.json", results)


def _result(candidate: Candidate, times: Mapping[str, float]) -> Result:
    parent, own = times.get(candidate.parent or ""), times.get(candidate.name)
    return Result(
        name=candidate.name,
        outcome=candidate.verdict.outcome.value,
        measurement=candidate.measurement,
        speedup_over_parent=parent / own if parent and own else None,
    )


def clear_scratch(trace: Trace) -> None:
    """Remove compile caches and candidates' folders: they are rebuilt where they are needed."""
    remove(trace.scratch)

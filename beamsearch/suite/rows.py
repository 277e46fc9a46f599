"""One problem of a suite in numbers, from its run's records."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from beamsearch.errors import BeamsearchError
from beamsearch.llm.costs import paid, run_prices
from beamsearch.records.baselines import BASELINES, called
from beamsearch.records.candidate import Candidate
from beamsearch.records.measurement import Measurement
from beamsearch.records.packed import ARCHIVE, opened_run
from beamsearch.records.ratios import comparable_times
from beamsearch.records.record import Record
from beamsearch.records.round import RoundRecord
from beamsearch.records.run import RunRecord
from beamsearch.records.suite import Entry, State
from beamsearch.records.trace import Trace, read_record
from beamsearch.records.verdict import Verdict
from beamsearch.run.results import find_candidate
from beamsearch.search.pairs import is_win
from kernel_profiling.errors import one_line

LEAST_HEADROOM = 1.1
"""A best baseline within so many times the floor leaves no headroom to have a share of: this is
twice the margin at which a run stops (`floor_margin`), which is the error of the floor's own
ceilings. So near to the floor, the share would be mostly that error."""


class Row(Record):
    """A problem and what its run came to. Times in milliseconds, all of one visit: that of the
    winner's confirmation; without a GPU modelled, and there are no baselines then."""

    name: str
    state: State
    dtype: str = ""
    source: Literal["measured", "modelled"] | None = None
    """Of the times; none where there is no winner."""
    gpu: str | None = None
    """That they are of."""
    winner: str | None = None
    """The run's best kernel, where the run is finished."""
    is_correct: bool = False
    """Whether the winner is, by the closest look that it had."""
    time_ms: float | None = None
    input_ms: float | None = None
    baselines_ms: dict[str, float] = {}
    """By name; those that could be timed."""
    floor_ms: float | None = None
    candidates: int = 0
    correct: int = 0
    rounds: int = 0
    attempts: int | None = None
    """Candidates up to the last confirmed win and with it; none without a win."""
    gains: list[float] = []
    """Speedup over the input kernel of the best so far, after each candidate; by the times of
    their rounds."""
    seconds: float = 0.0
    tokens: int = 0
    cost_usd: float | None = 0.0
    """None where a call has no known price."""
    flaws: list[str] = []
    notes: list[str] = []

    @property
    def best_baseline(self) -> str | None:
        """The fastest of the baselines."""
        return min(self.baselines_ms, key=lambda name: self.baselines_ms[name], default=None)

    @property
    def faster_baseline(self) -> str | None:
        """The fastest baseline, where it beats the winner by more than the noise: use that."""
        best = self.best_baseline
        if best is None or self.time_ms is None:
            return None
        return best if is_win(self.baselines_ms[best], self.time_ms) else None

    @property
    def is_won(self) -> bool:
        """Whether the winner is correct and beats every baseline by more than the noise."""
        best = self.best_baseline
        if best is None or self.time_ms is None or not self.is_correct:
            return False
        return is_win(self.time_ms, self.baselines_ms[best])

    @property
    def gains_over_baseline(self) -> list[float]:
        """The gains over the best baseline in place of the input kernel, by the winner's visit;
        empty without baselines."""
        best = self.best_baseline
        if best is None or self.input_ms is None:
            return []
        return [gain * self.baselines_ms[best] / self.input_ms for gain in self.gains]

    def used_ms(self, taken: bool) -> float | None:
        """The winner's time; with `taken`, that of a baseline that beats it. None where no winner
        is correct."""
        if not self.is_correct:
            return None
        faster = self.faster_baseline if taken else None
        return self.time_ms if faster is None else self.baselines_ms[faster]

    def over(self, name: str, taken: bool = False) -> float | None:
        """Speedup over `input` or a baseline; None where one of the times is not known."""
        other = self.input_ms if name == "input" else self.baselines_ms.get(name)
        own = self.used_ms(taken)
        return None if own is None or other is None else other / own

    @property
    def of_floor(self) -> float | None:
        """The winner's time as a multiple of the floor."""
        if self.floor_ms is None or self.time_ms is None or not self.is_correct:
            return None
        return self.time_ms / self.floor_ms

    @property
    def has_headroom(self) -> bool:
        """Whether the best baseline is far enough above the floor."""
        best = self.best_baseline
        if best is None or self.floor_ms is None:
            return False
        return self.baselines_ms[best] > LEAST_HEADROOM * self.floor_ms

    def headroom_share(self, taken: bool = False) -> float | None:
        """How much of the way from the best baseline to the floor was gone, in logarithms: 0 at the
        baseline, 1 at the floor, below 0 where the kernel is slower. None without headroom."""
        own, best = self.used_ms(taken), self.best_baseline
        if own is None or best is None or self.floor_ms is None or not self.has_headroom:
            return None
        baseline = self.baselines_ms[best]
        return math.log(baseline / own) / math.log(baseline / self.floor_ms)


def row_of(entry: Entry, folder: Path) -> Row:
    """A problem's row, from the folder of its run; where there is no run yet, from its entry. One
    whose records are gone or cannot be read has failed."""
    notes = [entry.reason] if entry.reason else []
    state = entry.state
    if (folder / "run.json").is_file() or (folder / ARCHIVE).is_file():
        try:
            return _row_of_run(entry, opened_run(folder), notes)
        except BeamsearchError as error:
            state, notes = "failed", [one_line(str(error))]
    elif state == "finished":
        state, notes = "failed", ["its run is gone; the same command makes it again"]
    return Row(name=entry.name, state=state, seconds=entry.seconds, notes=notes)


def _row_of_run(entry: Entry, trace: Trace, notes: list[str]) -> Row:
    """The same from a run's records. Raises BeamsearchError."""
    record, rounds = trace.run_record(), trace.completed_rounds()
    total = paid(trace, run_prices(trace, record.settings.prices), {}).total
    values: dict[str, object] = {
        "name": entry.name,
        "state": entry.state,
        "dtype": record.problem_dtype,
        "candidates": record.totals.candidates,
        "correct": record.totals.correct,
        "rounds": max(0, len(rounds) - 1),
        "attempts": attempts(rounds),
        "gains": gains(trace, rounds),
        "seconds": max(entry.seconds, record.totals.seconds),
        "tokens": total.tokens_in + total.tokens_out,
        "cost_usd": None if total.without_cost else total.cost_usd,
        "flaws": [fault.flaw for fault in record.flaws],
    }
    notes += [record.stop_reason] if record.stop_reason and not notes else []
    notes += record.notes
    row = Row.model_validate(values | _times(trace, record, rounds))
    if record.confirmation is not None:
        untimed = record.confirmation.baselines.absent
        notes += [f"no {called(name)}: {why}" for name, why in untimed.items()]
    if row.faster_baseline == "eager":  # of the compiler's, the run has a note
        notes.append("eager is faster than the kernel: use that")
    return row.with_values(notes=notes)


def attempts(rounds: Sequence[RoundRecord]) -> int | None:
    """Candidates up to the last confirmed win and with it; None without a win."""
    made, until = 0, None
    for record in rounds[1:]:
        names = [candidate.name for candidate in record.candidates]
        if record.win and record.running_best in names:
            until = made + names.index(record.running_best) + 1
        made += len(names)
    return until


def gains(trace: Trace, rounds: Sequence[RoundRecord]) -> list[float]:
    """Speedup over the input kernel of the best so far, after each candidate."""
    candidates = [c for record in rounds[1:] for c in record.candidates]
    times = comparable_times(trace, candidates)
    best, found = 1.0, []
    for candidate in candidates:
        if candidate.name in times and _is_sound(trace, candidate):
            best = max(best, 1 / times[candidate.name])
        found.append(best)
    return found


def _is_sound(trace: Trace, candidate: Candidate) -> bool:
    """Whether a candidate is correct, by the closest look that it had."""
    closer = trace.examination(candidate.name)
    verdict = read_record(closer, Verdict) if closer.is_file() else candidate.verdict
    return verdict.correct


def _times(trace: Trace, record: RunRecord, rounds: Sequence[RoundRecord]) -> dict[str, object]:
    """The winner and its times, where the run is finished."""
    if record.status != "finished" or record.best is None:
        return {}
    best = find_candidate(rounds, record.best)
    time: Measurement | None
    first: Measurement | None
    baselines: dict[str, float] = {}
    if record.confirmation is not None:
        time, first = record.confirmation.winner, record.confirmation.input
        measured = {n: getattr(record.confirmation.baselines, n) for n in BASELINES}
        baselines = {name: m.time_ms for name, m in measured.items() if m is not None}
    else:
        time, first = best.measurement, find_candidate(rounds, "r0-s0").measurement
    if time is None or first is None or (record.confirmation is None) != (time.visit is None):
        return {"winner": best.name}
    return {
        "winner": best.name,
        "is_correct": _is_sound(trace, best),
        "source": time.source,
        "gpu": time.gpu,
        "time_ms": time.time_ms,
        "input_ms": first.time_ms,
        "baselines_ms": baselines,
        "floor_ms": record.floor.time_ms if record.floor else None,
    }

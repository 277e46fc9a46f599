"""What the trace of a run says at one moment, while another process, or this one, writes it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from beamsearch.errors import UsageError
from beamsearch.llm.costs import Sum, ledger, run_prices, total
from beamsearch.llm.prices import Prices
from beamsearch.records.activity import Activity
from beamsearch.records.call import Call, LedgerLine
from beamsearch.records.candidate import Candidate
from beamsearch.records.record import R
from beamsearch.records.round import RoundRecord
from beamsearch.records.run import RunRecord
from beamsearch.records.trace import Trace, read_record
from beamsearch.run.lock import is_worked_on
from beamsearch.search.directions import Assignment, Plan


@dataclass(frozen=True)
class Snapshot:
    """A run at one moment."""

    record: RunRecord
    is_worked_on: bool
    activity: Activity | None
    """None where nobody works on the run, or it is just being set up."""
    rounds: list[RoundRecord]
    """The completed ones."""
    plans: dict[int, list[Assignment]]
    """Of the rounds under way, by number: the one after the completed ones, and those that were
    begun beside it."""
    under_way: list[Candidate]
    """The candidates of these rounds, in the order in which they got their verdicts."""
    paid: Sum
    """What the calls to models came to, those of the rounds under way too."""

    @property
    def plan(self) -> list[Assignment]:
        """Of the first round under way; empty where none is."""
        return self.plans.get(len(self.rounds), [])

    @property
    def candidates(self) -> list[Candidate]:
        """Every candidate but the first kernels."""
        completed = [c for record in self.rounds if record.round for c in record.candidates]
        return [*completed, *self.under_way]

    @property
    def outcomes(self) -> Counter[str]:
        """How many candidates got which verdict."""
        return Counter(str(candidate.verdict.outcome) for candidate in self.candidates)


class SnapshotReader:
    """Reads a run's trace again and again; what did not change is not read twice."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._read: dict[Path, tuple[int, Any]] = {}

    @cached_property
    def _prices(self) -> Prices:
        return run_prices(self.trace, self.trace.run_record().settings.prices)

    def read(self) -> Snapshot:
        """The run as it is now. Raises UsageError where there is none."""
        works = is_worked_on(self.trace.folder)
        record = self.trace.run_record()
        rounds: list[RoundRecord] = []
        while (path := self.trace.round(len(rounds)) / "round.json").is_file():
            rounds.append(self._record(path, RoundRecord))
        number = len(rounds)
        plans: dict[int, list[Assignment]] = {}
        while (path := self.trace.round(number + len(plans)) / "plan.json").is_file():
            plans[number + len(plans)] = self._record(path, Plan).assignments
        begun = range(number, number + max(1, len(plans)))
        judged = sorted(
            (path for each in begun for path in self.trace.judged(each)),
            key=lambda path: path.stat().st_mtime_ns,
        )
        return Snapshot(
            record=record,
            is_worked_on=works,
            activity=self._activity() if works else None,
            rounds=rounds,
            plans=plans,
            under_way=[self._record(path, Candidate) for path in judged],
            paid=total([*self._lines(number), *chain.from_iterable(map(self._new_lines, begun))]),
        )

    def _record(self, path: Path, kind: type[R]) -> R:
        """A record, read where its file is another one than before."""
        changed = path.stat().st_mtime_ns
        before, there = self._read.get(path, (None, None))
        if there is None or before != changed:
            there = read_record(path, kind)
            self._read[path] = changed, there
        assert isinstance(there, kind)
        return there

    def _activity(self) -> Activity | None:
        try:
            return read_record(self.trace.activity_file, Activity)
        except UsageError:  # not there yet, or not any more
            return None

    def _lines(self, before: int) -> list[LedgerLine]:
        """The ledger's lines of the rounds before one."""
        path = self.trace.ledger_file
        if not path.is_file():
            return []
        changed = path.stat().st_mtime_ns
        if self._read.get(path, (None, None))[0] != changed:
            lines = [LedgerLine.model_validate_json(text) for text in path.read_text().splitlines()]
            self._read[path] = changed, lines
        return [line for line in self._read[path][1] if line.round < before]

    def _new_lines(self, number: int) -> list[LedgerLine]:
        """What the ledger will say of the calls of a round."""
        paths = self.trace.round(number).glob("workers/*/calls/*.json")
        calls = [self._record(path, Call) for path in paths]
        return ledger([call for call in calls if call.model is not None], self._prices)

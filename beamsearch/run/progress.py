"""How far a run is: its record, the clock of its time limit, and what is rebuilt with them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from datetime import UTC, datetime

from beamsearch.gpu.usage import Usage
from beamsearch.llm.costs import save_ledger
from beamsearch.records.ratios import comparable_times
from beamsearch.records.run import Node, RunRecord
from beamsearch.records.trace import Trace, write_record, write_text
from beamsearch.records.usage import LaneUse
from beamsearch.run.place import with_gpus
from beamsearch.run.results import results_tsv, summarise, totals


class Progress:
    """`run.json`, kept as the run goes on; `results.tsv` and `ledger.jsonl` follow from records."""

    def __init__(self, trace: Trace, record: RunRecord, started: float, usage: Usage) -> None:
        """`started`: when this process began, by `time.monotonic`, and `usage`: where its time
        goes; what earlier ones took is in the record."""
        self.trace = trace
        self.record = record
        self._lock = threading.Lock()
        self._before, self._saved_before = record.totals.seconds, record.saved
        self._started = started
        self._usage = usage
        self._is_idle = False
        self._used_before = record.totals.lane or LaneUse()
        write_record(trace.run_file, record)

    @property
    def seconds(self) -> float:
        """What the run took so far, in every process."""
        return self._before + (0 if self._is_idle else time.monotonic() - self._started)

    def nothing_done(self) -> None:
        """This process found nothing to do: what it took is no part of the run."""
        self._is_idle = True
        self.update(saved=self._saved_before)

    def is_out_of_time(self) -> bool:
        """Whether the time limit is reached."""
        limit = self.record.settings.time_limit_s
        return limit is not None and self.seconds >= limit

    def update(self, **fields: object) -> None:
        """Change the record, to be written with the next `save`; thread-safe."""
        with self._lock:
            self.record = self.record.with_values(**fields)

    def note(self, notes: Iterable[str]) -> None:
        """Add to the record's notes what is not among them; thread-safe."""
        with self._lock:
            kept = dict.fromkeys([*self.record.notes, *notes])
            self.record = self.record.with_values(notes=list(kept))

    def met(self, node: Node, gpu: str | None) -> None:
        """A lane began on a node of a cluster, with this GPU. Thread-safe."""
        with self._lock:
            there = self.record.environment
            now = there.with_values(nodes=[node], gpus=[gpu] if gpu else [])
            self.record = self.record.with_values(environment=with_gpus(there, now))

    def save(self, **fields: object) -> RunRecord:
        """Write the record, with what the rounds came to so far."""
        done = self.trace.completed_rounds()
        use = self._used_before
        if not self._is_idle:
            use = use.plus(self._usage.so_far())
            fields = {"saved": datetime.now(UTC)} | fields
        fields = {"totals": totals(self.trace, done, self.seconds, use)} | fields
        if done:
            everyone = [c for record in done for c in record.candidates]
            times = comparable_times(self.trace, everyone)
            rounds, best = summarise(self.trace, done, times)
            fields = {"rounds": rounds, "best": best} | fields
            write_text(self.trace.results_file, results_tsv(everyone, times))
        save_ledger(self.trace, self.record.settings.prices)
        self.update(**fields)
        write_record(self.trace.run_file, self.record)
        return self.record

"""A run as its pages read it: every record of its trace that a page needs, each read once."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from beamsearch.errors import UsageError
from beamsearch.records.baselines import BASELINES
from beamsearch.records.call import LedgerLine
from beamsearch.records.candidate import Candidate
from beamsearch.records.measurement import Measurement
from beamsearch.records.ratios import InTurns, comparable_times, in_turns
from beamsearch.records.round import RoundRecord
from beamsearch.records.run import RunRecord
from beamsearch.records.trace import Trace, read_record
from beamsearch.records.verdict import Verdict
from beamsearch.report.numbers import ratio, short_id
from beamsearch.search.pairs import MODELLED_NOISE, NOISE, is_win
from kernel_profiling.findings.findings import find
from kernel_profiling.profile import Finding, Profile

INPUT = "r0-s0"
LEAST_END_S = 5.0
"""A closer look and a timing beside the baselines take longer."""


@dataclass(frozen=True)
class Change:
    """One kernel against another that it may be compared with."""

    speedup: float
    word: str
    """`faster`, `slower`, or `tie` where the difference is inside the noise."""
    about: str
    """`~` where times are modelled."""

    def __str__(self) -> str:
        """As `than`, for a column whose head says than what: `1.958x faster`."""
        if self.word == "tie":
            return f"tie ({self.about}{self.speedup:.3f}x)"
        return f"{self._factor()} {self.word}"

    def than(self, other: str) -> str:
        """`1.958x faster than r0-s0`."""
        if self.word == "tie":
            return f"as fast as {other} within the noise ({self.about}{self.speedup:.3f}x)"
        return f"{self._factor()} {self.word} than {other}"

    def _factor(self) -> str:
        factor = self.speedup if self.word == "faster" else 1 / self.speedup
        return f"{self.about}{factor:.3f}x"


class RunData:
    """One run, from its records alone."""

    def __init__(self, trace: Trace) -> None:
        """Raises UsageError where no round is complete, or a record cannot be read."""
        self.trace = trace
        self.record: RunRecord = trace.run_record()
        self.rounds: list[RoundRecord] = trace.completed_rounds()
        if not self.rounds:
            raise UsageError(
                f"{trace.folder} has no completed round yet; `resume {trace.folder}` goes on with "
                "it, and there is a report after its first kernel was judged"
            )
        self.candidates = {c.name: c for record in self.rounds for c in record.candidates}
        self._profiles: dict[str, Profile | None] = {}
        self._findings: dict[str, list[Finding]] = {}

    @cached_property
    def times(self) -> dict[str, float]:
        """Candidate -> its time over the input kernel's in the same visit."""
        return comparable_times(self.trace, list(self.candidates.values()))

    @cached_property
    def in_turns(self) -> dict[str, InTurns]:
        """Kernel that was timed again to confirm a win -> what its ratios rest on."""
        return in_turns(self.trace, self.candidates)

    def ranked_time(self, candidate: Candidate) -> Measurement | None:
        """The time that a kernel's ratios rest on."""
        turns = self.in_turns.get(candidate.name)
        return turns.time if turns else candidate.measurement

    @property
    def after_rounds_s(self) -> float | None:
        """Seconds between the last round and the end of the run; None where it has not ended,
        rounds did not keep when they did, or the end was taken within the last round."""
        last = self.rounds[-1].seconds
        if last is None or self.record.confirmation is None or self.record.status != "finished":
            return None
        after = self.record.totals.seconds - last
        return after if after >= LEAST_END_S else None

    @property
    def winner(self) -> Candidate:
        """The best kernel."""
        return self.candidates[self.record.best or self.rounds[-1].running_best]

    @cached_property
    def modelled(self) -> bool:
        """Whether its times come from the model."""
        time = self.candidates[INPUT].measurement
        return time is not None and time.source == "modelled"

    @property
    def about(self) -> str:
        """What stands before a number that rests on times."""
        return "~" if self.modelled else ""

    @property
    def noise(self) -> float:
        """Relative difference below which two times are a tie."""
        return MODELLED_NOISE if self.modelled else NOISE

    @cached_property
    def input_time(self) -> Measurement:
        """The input kernel's time beside the baselines, else the first that was taken."""
        confirmed = self.record.confirmation
        times = (confirmed.input if confirmed else None, self.record.baselines.anchor)
        own = self.candidates[INPUT].measurement
        return next(time for time in (*times, own) if time is not None)

    @cached_property
    def baseline_speedups(self) -> dict[str, float]:
        """Baseline -> how many times faster than the input kernel it is, in one visit."""
        confirmed = self.record.confirmation
        baselines = confirmed.baselines if confirmed else self.record.baselines
        ratios = {name: ratio(baselines.anchor, getattr(baselines, name)) for name in BASELINES}
        return {name: value for name, value in ratios.items() if value is not None}

    @property
    def floor_speedup(self) -> float | None:
        """How many times faster than the input kernel the floor is."""
        floor = self.record.floor
        return self.input_time.time_ms / floor.time_ms if floor and floor.time_ms > 0 else None

    @property
    def floor_card(self) -> str:
        """Short id of the GPU whose rates the floor rests on; empty where that is not known."""
        floor, first = self.record.floor, self.candidates[INPUT].measurement
        if floor is None or floor.bandwidth_source == "datasheet":
            return ""
        if floor.gpu_uuid:
            return short_id(floor.gpu_uuid)
        lane = self.record.totals.lane
        is_one = lane is not None and not lane.lanes  # then it measured the first kernel too
        return short_id(first.gpu_uuid) if is_one and first and first.gpu_uuid else ""

    @cached_property
    def ledger(self) -> list[LedgerLine]:
        """A line a call to a model; none where no model was asked."""
        path = self.trace.ledger_file
        lines = path.read_text().splitlines() if path.is_file() else []
        return [LedgerLine.model_validate_json(line) for line in lines]

    def against(self, candidate: Candidate, other: str | None) -> Change | None:
        """How it stands against another; None where one of them has no time."""
        own, its = self.times.get(candidate.name), self.times.get(other or "")
        if own is None or its is None:
            return None
        faster, slower = is_win(own, its, self.noise), is_win(its, own, self.noise)
        word = "faster" if faster else "slower" if slower else "tie"
        return Change(its / own, word, self.about)

    def origin(self, candidate: Candidate) -> str | None:
        """The kernel that it was made from."""
        return candidate.tuned_from or candidate.repair_of or candidate.parent

    def seconds(self, name: str) -> float:
        """Its time in the visit of the last measurement: measured there of the winner, of others
        by their ratio to the input kernel."""
        confirmed = self.record.confirmation
        if confirmed is not None and name == self.winner.name:
            return confirmed.winner.time_ms * 1e-3
        return self.times[name] * self.input_time.time_ms * 1e-3

    def repairs(self, candidate: Candidate) -> list[Candidate]:
        """What was made of it because it failed."""
        return [c for c in self.candidates.values() if c.repair_of == candidate.name]

    def lineage(self, candidate: Candidate) -> list[Candidate]:
        """From the first kernel to this one, each made from the one before."""
        line = [candidate]
        while (name := self.origin(line[-1])) in self.candidates:
            assert name is not None
            line.append(self.candidates[name])
        return line[::-1]

    @cached_property
    def workers(self) -> list[list[Candidate]]:
        """The kernels of each worker that had a direction, in the order of rounds."""
        found: dict[tuple[int, int], list[Candidate]] = defaultdict(list)
        for candidate in self.candidates.values():
            if candidate.worker is not None and candidate.direction is not None:
                found[candidate.round, candidate.worker].append(candidate)
        return [found[key] for key in sorted(found)]

    @cached_property
    def bests(self) -> list[Candidate]:
        """The running best, each time that it changed."""
        return [self.candidates[n] for n in dict.fromkeys(r.running_best for r in self.rounds)]

    @cached_property
    def rounds_best(self) -> dict[int, str | None]:
        """Round -> its best kernel."""
        return {record.round: record.best for record in self.rounds}

    @property
    def important(self) -> list[str]:
        """Names whose texts come first where not all have room: the winner's line, then every best,
        then the rounds' own."""
        rounds = [record.best for record in self.rounds if record.best]
        line = [c.name for c in (*self.lineage(self.winner)[::-1], *self.bests)]
        return list(dict.fromkeys([*line, *rounds, *self.candidates]))

    def source(self, candidate: Candidate) -> str | None:
        """Its source; None where there was no code."""
        return self.trace.kernel_source(candidate) if candidate.kernel_file else None

    def profile(self, name: str) -> Profile | None:
        """Its profile; None where none was taken."""
        if name not in self._profiles:
            path = self.trace.profile(name)
            self._profiles[name] = read_record(path, Profile) if path.is_file() else None
        return self._profiles[name]

    def findings(self, candidate: Candidate) -> list[Finding]:
        """What its profile means."""
        if candidate.name not in self._findings:
            profile = self.profile(candidate.name)
            time = candidate.measurement.time_ms if candidate.measurement else None
            found = find(profile, self.record.floor, time) if profile else []
            self._findings[candidate.name] = found
        return self._findings[candidate.name]

    @cached_property
    def examination(self) -> Verdict:
        """The closest look that was taken at the winner."""
        path = self.trace.examination(self.winner.name)
        return read_record(path, Verdict) if path.is_file() else self.winner.verdict

    def worker_files(self, candidate: Candidate) -> list[tuple[str, Path]]:
        """What its worker asked and was answered, titles first, as far as it concerns it."""
        if candidate.worker is None:
            return []
        folder = self.trace.worker(candidate.round, candidate.worker)
        name = candidate.name
        own = [(f"{name}_prompt", "repair: prompt"), (f"{name}_reply", "repair: reply")]
        named = [*_OF_WORKER, *(own if candidate.repair_of else [])]
        paths = [
            (title, path)
            for stem, title in named
            for path in sorted(folder.glob(f"{stem}.txt"))
            + sorted(folder.glob(f"{stem}_[0-9].txt"))
        ]
        return paths

    def plan(self, candidate: Candidate) -> Mapping[str, str]:
        """`cause` and `plan` of its worker's diagnosis, each empty where there is none."""
        return self._said(candidate, "strategy.json", ("cause", "plan"))

    def reflection(self, candidate: Candidate) -> str:
        """What was said of its worker's kernels afterwards, in a few sentences."""
        return self._said(candidate, "reflexion.txt", ("summary",))["summary"]

    def lessons(self, candidate: Candidate, kind: str) -> list[str]:
        """What its worker's reflection says to later rounds: `lessons`, or `patterns_to_avoid`."""
        texts = self._answer(candidate, "reflexion.txt").get(kind)
        return [str(text) for text in texts] if isinstance(texts, list) else []

    def _said(self, candidate: Candidate, file: str, keys: Sequence[str]) -> dict[str, str]:
        found = self._answer(candidate, file)
        return {key: str(found.get(key, "")) for key in keys}

    def _answer(self, candidate: Candidate, file: str) -> dict[str, Any]:
        if candidate.worker is None:
            return {}
        path = self.trace.worker(candidate.round, candidate.worker) / file
        return _object(path.read_text()) if path.is_file() else {}


_OF_WORKER = (
    ("bottleneck_prompt", "diagnosis: prompt"),
    ("bottleneck_response", "diagnosis: reply"),
    ("opt_prompt", "variants: prompt"),
    ("opt_reply", "variants: reply"),
    ("review_prompt", "review: prompt"),
    ("review_reply", "review: reply"),
    ("reflexion_prompt", "reflection: prompt"),
    ("reflexion", "reflection: reply"),
)


def _object(text: str) -> dict[str, Any]:
    """The JSON object in a reply; empty where there is none."""
    try:
        found = json.loads(text[text.index("{") : text.rindex("}") + 1])
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}

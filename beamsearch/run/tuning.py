"""Tuning apart from thinking: after a structural win, other launch parameters and block sizes."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from beamsearch.problem.kernel import build, fingerprint
from beamsearch.proposer.playbook.rewrites.launch import settings_of
from beamsearch.records.candidate import Candidate
from beamsearch.records.job import Subject, SweepJob
from beamsearch.records.packed import opened_run
from beamsearch.records.proposal import Proposal
from beamsearch.records.ratios import comparable_times
from beamsearch.records.trace import Trace, read_record, recorded
from beamsearch.records.tuning import Form, Tuning
from beamsearch.run.candidates import Made, names_of
from beamsearch.run.context import RoundView, Shared
from beamsearch.run.results import multiple_of_floor
from beamsearch.search.directions import Plan
from beamsearch.search.pairs import NOISE, is_win

FILE = "tuning.json"
JUDGED = 2
"""The fastest forms that are judged, the second only where the first is not a gain after all."""
LEAST_SHARE = 0.05
"""Of the call's time: a function of several that takes less is not swept. Twice as fast, it would
gain 2.5%."""
AS_IT_IS = "as it is"


class Maker(Protocol):
    """Whose candidates are tuned: a worker's, or a person's."""

    shared: Shared
    view: RoundView
    parent: Candidate
    """What they have to beat."""
    folder: Path

    @property
    def worker(self) -> int | None:
        """None for a person's."""

    def doing(self, what: str) -> None:
        """Says so. Raises Stopped where the run is being stopped."""

    def judge(self, made: Made, seen: Mapping[str, str]) -> Candidate:
        """The judged candidate."""


class Tuner:
    """Tunes the best of one worker's candidates."""

    def __init__(self, bench: Maker) -> None:
        self.bench = bench
        self.shared = bench.shared
        self.count = self.shared.settings.configurations(self.shared.executor.measures)

    def run(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """The judged forms; none where nobody won by more than constants, the floor is as near as
        ends a run, or no form is faster. A replay judges the recorded run's."""
        if self.shared.settings.llm.run is not None:
            return self._as_recorded(self.shared.settings.llm.run, candidates)
        times = comparable_times(self.shared.trace, [self.bench.parent, *candidates])
        winner = self._winner(candidates, times)
        if winner is None:
            return []
        known = winner.verdict.launched, self._worth(winner)
        forms = forms_of(self.shared.source(winner), self.count, *known)
        if not forms:
            return []
        self.bench.doing(f"tuning {winner.name}")
        tuning = recorded(self.bench.folder / FILE, Tuning, lambda: self._sweep(winner, forms))
        judged: list[Candidate] = []
        for number, setting in enumerate(gaining(tuning)[:JUDGED], 1):
            proposal = Proposal(
                description=f"{setting}; tuned", source=forms[setting], author=winner.author
            )
            made = Made(f"{winner.name}-t{number}", proposal, tuned_from=winner.name)
            seen = {**names_of([*candidates, *judged]), **self.bench.view.seen}
            judged.append(self.bench.judge(made, seen))
            times = comparable_times(self.shared.trace, [winner, judged[-1]])
            own = times.get(judged[-1].name)
            if own is not None and is_win(own, times[winner.name]):
                break
        return judged

    def _as_recorded(self, folder: Path, candidates: Sequence[Candidate]) -> list[Candidate]:
        """What the recorded run made of these candidates by tuning, judged here."""
        there = opened_run(folder)
        worker = there.worker(self.bench.view.number, self.bench.worker)
        judged: list[Candidate] = []
        for path in sorted(worker.glob("r*-t*.json")):
            tuned = read_record(path, Candidate)
            proposal = Proposal(
                description=tuned.description,
                source=there.kernel_source(tuned),
                author=tuned.author,
            )
            made = Made(tuned.name, proposal, tuned_from=tuned.tuned_from)
            seen = {**names_of([*candidates, *judged]), **self.bench.view.seen}
            judged.append(self.bench.judge(made, seen))
        return judged

    def _winner(
        self, candidates: Sequence[Candidate], times: Mapping[str, float]
    ) -> Candidate | None:
        """The fastest that beats its parent and is built otherwise."""
        if not self.count:
            return None
        parent = self.bench.parent
        won = [
            c for c in candidates if c.name in times and is_win(times[c.name], times[parent.name])
        ]
        if not won:
            return None
        best = min(won, key=lambda c: times[c.name])
        near = multiple_of_floor(best.measurement, self.shared.floor)
        if near is not None and near <= 1 + self.shared.settings.floor_margin:
            return None
        alike = build(self.shared.source(best)) == build(self.shared.source(parent))
        return None if alike else best

    def _worth(self, winner: Candidate) -> list[str]:
        """The functions that take a fair share of the call's time, where it has several: what is
        swept of the others gains nothing. Empty where this is not known."""
        if len(winner.verdict.launched) < 2 or not self.shared.executor.measures:
            return []
        shares: dict[str, float] = defaultdict(float)
        for launch in self.shared.profile(winner).launches:
            shares[launch.name] += launch.share or 0.0
        return [name for name in winner.verdict.launched if shares[name] >= LEAST_SHARE]

    def _sweep(self, winner: Candidate, forms: Mapping[str, str]) -> Tuning:
        begun = time.monotonic()
        sources = {AS_IT_IS: self.shared.source(winner), **forms}
        subjects = [Subject(name=setting, source=source) for setting, source in sources.items()]
        sweep = self.shared.executor.run(SweepJob(round=winner.round, subjects=subjects))
        self.shared.stop.check()
        return Tuning(
            of=winner.name,
            modelled=sweep.modelled,
            forms=[
                Form(
                    setting=setting,
                    fingerprint=fingerprint(source),
                    times_ms=sweep.times_ms.get(setting, []),
                    reason=sweep.failed.get(setting, ""),
                )
                for setting, source in sources.items()
            ],
            seconds=round(time.monotonic() - begun, 3),
        )


def forms_of(
    source: str, count: int, launched: Collection[str] = (), worth: Collection[str] = ()
) -> dict[str, str]:
    """Setting -> source of up to `count` forms of a kernel, nearest first; of several kernels that
    it launches, each in turn. `launched`: those that count, where this is known; `worth`: those of
    them that are changed, likewise."""
    forms: dict[str, str] = {}
    lists = [iter(results) for results in settings_of(source, launched, worth)]
    while lists and len(forms) < count:
        for results in list(lists):
            setting, form = next(results, ("", ""))
            if not form:
                lists.remove(results)
            elif len(forms) < count and form not in forms.values():
                forms[setting] = form
    return forms


def gaining(tuning: Tuning) -> list[str]:
    """Settings that came to the last rung and beat the kernel as it is by more than the noise,
    fastest first."""
    base, *others = tuning.forms
    if not base.times_ms:
        return []
    last = {f.setting: f.times_ms[-1] for f in others if len(f.times_ms) == len(base.times_ms)}
    faster = [setting for setting, ms in last.items() if ms < base.times_ms[-1] * (1 - NOISE)]
    return sorted(faster, key=lambda setting: last[setting])


def tunings(trace: Trace, number: int, plan: Plan) -> list[Tuning]:
    """The sweeps of a round: of a person's kernels, then by worker."""
    makers = [None, *(a.worker for a in plan.assignments)]
    files = [trace.worker(number, maker) / FILE for maker in makers]
    return [read_record(path, Tuning) for path in files if path.is_file()]

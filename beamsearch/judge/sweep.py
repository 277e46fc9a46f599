"""Forms of one kernel timed against each other by successive halving: few calls of many at first.

A form is the kernel with other constants, so all share a process and a compile cache: what one
could do to another, it does to itself. Every result is compared all the same, since a block size
may be part of what a kernel computes. No verdict comes of this: what is fast is judged afterwards.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from beamsearch.executor.jobs import Subject, Sweep
from beamsearch.judge.ahead import Compilers
from beamsearch.judge.processes import CandidateProcess
from beamsearch.judge.sources import source_key, source_of, write_sources
from beamsearch.judge.timing import TimedSets, run_batch
from beamsearch.judge.verify import GPU_CALL_S, Log, Rejected, bind, check_policy, load

FIRST_CALLS = 4
"""Timed calls of each form at first: the medians of four calls on an H200 are within a few percent,
and forms differ by tens."""
LATER_CALLS = 12
"""Of those that are left, in each of two turns."""
KEPT = 4
"""One in four goes on, and at least two."""


@dataclass(frozen=True)
class Forms:
    """Forms that compile, as files in one folder, and why others do not go on."""

    key: str
    paths: dict[str, str]
    failed: dict[str, str]


def compiled_forms(subjects: Sequence[Subject], scratch: Path, compilers: Compilers) -> Forms:
    """Compile forms side by side; equal code goes on once, the earliest of it."""
    sources = {subject.name: source_of(subject) for subject in subjects}
    failed: dict[str, str] = {}
    for name, source in list(sources.items()):
        try:
            check_policy(source, Log())
        except Rejected as rejection:
            failed[name] = rejection.reason
            del sources[name]
    key = source_key("\f".join(sources.values()))
    paths = write_sources(scratch, key, sources)
    for path in paths.values():
        compilers.begin(path, key, everywhere=False)
    codes: dict[str, str] = {}
    for name, path in list(paths.items()):
        compiled = compilers.result(path, key)
        code = compiled.log.code_fingerprint
        if compiled.rejection is not None:
            failed[name] = compiled.rejection.reason
        elif compiled.profile is None:
            failed[name] = "; ".join(compiled.log.not_checked)
        elif code is not None and code in codes:
            failed[name] = f"compiles to the same code as {codes[code]}"
        else:
            codes[code or name] = name
            continue
        del paths[name]
    return Forms(key, paths, failed)


class Sweeper:
    """One sweep. Needs the lane."""

    def __init__(
        self,
        forms: Forms,
        timed: TimedSets,
        open_process: Callable[..., CandidateProcess],
        mend: Callable[[], None],
    ) -> None:
        self._forms = forms
        self._timed = timed
        self._open = open_process
        self._mend = mend
        self._process: CandidateProcess | None = None
        self._bound: set[str] = set()
        """Forms that the process at hand knows."""
        self._times: dict[str, list[float]] = {}
        self._failed = dict(forms.failed)

    def run(self) -> Sweep:
        """Both rungs. The first form, the kernel as it is, is in each; where it cannot be timed
        again, none has anything to beat."""
        try:
            left = list(self._forms.paths)
            for name in left:
                self._try(name, FIRST_CALLS)
            timed = [name for name in left if name not in self._failed]
            timed.sort(key=lambda name: self._times[name][-1])
            left = list(dict.fromkeys([*left[:1], *timed[: max(2, len(timed) // KEPT)]]))
            turns: dict[str, list[float]] = {}
            for order in (left, left[::-1]):  # whatever drifts, drifts for all
                for name in order:
                    if name not in self._failed:
                        self._try(name, LATER_CALLS)
                        turns.setdefault(name, []).append(self._times[name].pop())
            for name, medians in turns.items():
                self._times[name].append(statistics.median(medians))
        finally:
            self._drop()
        times = {name: ms for name, ms in self._times.items() if name not in self._failed}
        return Sweep(times_ms=times, failed=self._failed)

    def _try(self, name: str, calls: int) -> None:
        """One turn of a form; its process goes with one that fails."""
        try:
            self._times.setdefault(name, []).append(self._turn(name, calls))
        except Rejected as rejection:
            self._failed[name] = rejection.reason
            self._times.setdefault(name, []).append(float("inf"))
            self._drop()
            self._mend()

    def _turn(self, name: str, calls: int) -> float:
        """Median time of some calls in milliseconds, the last result checked. Raises Rejected."""
        timed = replace(self._timed, names=[f"{name} {label}" for label in self._timed.names])
        process = self._process
        if process is None:
            process = self._process = self._open(key=self._forms.key)
            self._bound = set()
        if name not in self._bound:
            load(process, self._forms.paths[name])
            for label, inputs in zip(timed.names, timed.inputs, strict=True):
                assert inputs.shared is not None
                bind(process, label, inputs.shared, GPU_CALL_S)
            self._bound.add(name)
            every = list(range(len(timed.inputs)))
            run_batch(process, timed, every, 0, 1, GPU_CALL_S)
        batch = run_batch(process, timed, timed.schedule(calls), 0, 2, GPU_CALL_S, check=True)
        timed.check_unchanged()
        return statistics.median(batch.times_ms)

    def _drop(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.end()

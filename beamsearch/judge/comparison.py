"""Several subjects timed in one visit, in turn: A B C, A B C, …"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from pathlib import Path

from beamsearch.executor.jobs import Subject
from beamsearch.judge.agreement import Batch
from beamsearch.judge.processes import CandidateProcess
from beamsearch.judge.reference import COMPILE_MODES, problem_message
from beamsearch.judge.sources import source_key, source_of, write_source
from beamsearch.judge.timing import TimedSets, disbelieved, fresh_batch, run_batch
from beamsearch.judge.verify import (
    FIRST_CALL_S,
    GPU_CALL_S,
    Log,
    Rejected,
    bind,
    check_policy,
    guarded,
    load,
)
from beamsearch.problem import Problem
from beamsearch.records.verdict import Outcome, Stage

TUNING_S = 300.0
"""Seconds torch.compile may take to tune itself; what it finds is kept for the next time."""
ROUNDS = 10
"""Turns of each subject: a drift of the clocks then meets all alike."""
TURN_MS = 40.0
"""Kernel time of one turn."""
BASELINE_FILE_BYTES = 1 << 30


class Comparer:
    """One comparison. Needs the lane."""

    def __init__(self, problem: Problem, timed: TimedSets, scratch: Path) -> None:
        self._problem = problem
        self._timed = timed
        self._scratch = scratch
        self._processes: dict[str, CandidateProcess] = {}
        self._estimates: dict[str, float] = {}
        self._batches: dict[str, list[Batch]] = {}

    def run(
        self, subjects: list[Subject], open_process: Callable[..., CandidateProcess]
    ) -> tuple[dict[str, list[Batch]], dict[str, str]]:
        """Batches by subject, and why a subject has none. One process a subject, all alive."""
        failed: dict[str, str] = {}

        def attempt(name: str, action: Callable[[], None]) -> None:
            try:
                action()
            except Rejected as rejection:
                failed[name] = rejection.reason
                self._batches.pop(name, None)
                self._drop(name)
                self._timed.sets.mend()  # the others must not find what it wrote

        try:
            for subject in subjects:
                attempt(subject.name, lambda s=subject: self._prepare(s, open_process))  # type: ignore[misc]
            slowest = max(self._estimates.values(), default=1.0)
            for _ in range(ROUNDS if slowest < 30 else ROUNDS // 2):
                new = self._timed.renew()
                for name in list(self._processes):
                    attempt(name, lambda n=name, new=new: self._turn(n, new))  # type: ignore[misc]
            for subject in subjects:
                if subject.kind == "kernel" and subject.name in self._batches:
                    attempt(subject.name, lambda n=subject.name: self._believe(n))  # type: ignore[misc]
        finally:
            for name in list(self._processes):
                self._drop(name)
        return self._batches, failed

    def _prepare(self, subject: Subject, open_process: Callable[..., CandidateProcess]) -> None:
        """Start, load, bind, check once, and estimate. Raises Rejected."""
        name, first_s = subject.name, FIRST_CALL_S
        if subject.kind == "kernel":
            source = source_of(subject)
            check_policy(source, Log())
            path = write_source(self._scratch, source)
            process = self._processes[name] = open_process(key=source_key(source))
            load(process, path)
        else:
            first_s = TUNING_S
            process = self._processes[name] = open_process(
                trusted=True, env=baseline_caches(), file_bytes=BASELINE_FILE_BYTES
            )
            problem, mode = problem_message(self._problem), COMPILE_MODES[subject.kind]
            guarded(
                Stage.LOAD,
                "reference",
                lambda: process.ask("reference", TUNING_S, problem=problem, mode=mode),
            )
        for label, inputs in zip(self._timed.names, self._timed.inputs, strict=True):
            assert inputs.shared is not None
            bind(process, label, inputs.shared, GPU_CALL_S)
        # Every set once before anything is timed: each may be compiled for on its own.
        every = list(range(len(self._timed.inputs)))
        run_batch(process, self._timed, every, 0, 2, first_s, check=True)
        again = run_batch(process, self._timed, self._timed.schedule(3), 0, 2, first_s)
        self._timed.check_unchanged()
        self._estimates[name] = statistics.median(again.times_ms)

    def _turn(self, name: str, new: int) -> None:
        """One turn of a subject: as many calls as fit, the last one checked. Raises Rejected."""
        estimate = self._estimates[name]
        count = max(2, min(20, round(TURN_MS / max(estimate, 1e-3))))
        process = self._processes[name]
        batch = fresh_batch(process, self._timed, count, 2, estimate, new)
        self._timed.check_unchanged()  # or the next subject would be blamed
        self._batches.setdefault(name, []).append(batch)

    def _believe(self, name: str) -> None:
        """The clocks agree, as where a candidate is timed alone. Raises Rejected."""
        batches = self._batches[name]
        reason = disbelieved(batches, self._timed.flush_ms)
        if reason:
            raise Rejected(Outcome.DISALLOWED, Stage.TIMING, reason)

    def _drop(self, name: str) -> None:
        process = self._processes.pop(name, None)
        if process is not None:
            process.end()


def baseline_caches() -> dict[str, str]:
    """Where torch.compile keeps what it tuned, so that a machine pays for it once."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "beamsearch"
    folders = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}
    return {name: str(root / folder) for name, folder in folders.items()}

"""Several subjects timed in one visit, in turn: A B C, A B C, …"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from beamsearch.executor.jobs import Subject
from beamsearch.judge.processes import CandidateProcess
from beamsearch.judge.reference import COMPILE_MODES, problem_message
from beamsearch.judge.sources import source_of, write_source
from beamsearch.judge.timing import FIRST_CALL_S, TimedSets, lap
from beamsearch.judge.verify import GPU_CALL_S, Log, Rejected, bind, check_policy, guarded, load
from beamsearch.problem import Problem
from beamsearch.records.verdict import Stage

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
        self._kinds: dict[str, str] = {}

    def run(
        self, subjects: list[Subject], open_process: Callable[..., CandidateProcess]
    ) -> tuple[dict[str, list[float]], dict[str, str]]:
        """Milliseconds by subject, and why a subject has none. One process a subject, all alive."""
        failed: dict[str, str] = {}
        times: dict[str, list[float]] = {}
        try:
            for subject in subjects:
                try:
                    self._prepare(subject, open_process)
                except Rejected as rejection:
                    failed[subject.name] = rejection.reason
                    self._drop(subject.name)
            slowest = max(self._estimates.values(), default=1.0)
            rounds = ROUNDS if slowest < 30 else ROUNDS // 2
            for turn in range(rounds):
                for name in list(self._processes):
                    try:
                        times.setdefault(name, []).extend(self._turn(name, turn == rounds - 1))
                    except Rejected as rejection:
                        failed[name] = rejection.reason
                        times.pop(name, None)
                        self._drop(name)
        finally:
            for name in list(self._processes):
                self._drop(name)
        return times, failed

    def _prepare(self, subject: Subject, open_process: Callable[..., CandidateProcess]) -> None:
        """Start, load, bind, check once where it is a kernel, and estimate. Raises Rejected."""
        name, first_s = subject.name, FIRST_CALL_S
        if subject.kind == "kernel":
            source = source_of(subject)
            check_policy(source, Log())
            process = self._processes[name] = open_process()
            load(process, write_source(self._scratch, source))
        else:
            first_s = TUNING_S
            process = self._processes[name] = open_process(
                env=baseline_caches(), file_bytes=BASELINE_FILE_BYTES
            )
            problem, mode = problem_message(self._problem), COMPILE_MODES[subject.kind]
            guarded(
                Stage.LOAD,
                "reference",
                lambda: process.ask("reference", TUNING_S, problem=problem, mode=mode),
            )
        self._kinds[name] = subject.kind
        for label, inputs in zip(self._timed.names, self._timed.inputs, strict=True):
            assert inputs.shared is not None
            bind(process, label, inputs.shared, GPU_CALL_S)
        check = subject.kind == "kernel"
        # Every set once before anything is timed: each may be compiled for on its own.
        lap(process, self._timed, warmup=2, count=1, timeout_s=first_s, check=check)
        again = lap(process, self._timed, warmup=2, count=3, timeout_s=first_s)
        self._estimates[name] = again.median_ms

    def _turn(self, name: str, last: bool) -> list[float]:
        """One turn of a subject: as many calls as fit, a whole number of rounds over the sets."""
        estimate = self._estimates[name]
        count = max(2, min(20, round(TURN_MS / max(estimate, 1e-3))))
        check = last and self._kinds[name] == "kernel"
        result = lap(
            self._processes[name],
            self._timed,
            warmup=2,
            count=count,
            timeout_s=30.0 + count * estimate / 100,
            check=check,
        )
        return result.times_ms

    def _drop(self, name: str) -> None:
        process = self._processes.pop(name, None)
        if process is not None:
            process.end()


def baseline_caches() -> dict[str, str]:
    """Where torch.compile keeps what it tuned, so that a machine pays for it once."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "beamsearch"
    folders = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}
    return {name: str(root / folder) for name, folder in folders.items()}

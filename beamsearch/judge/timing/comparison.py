"""Several subjects timed in one visit, in turn: A B C, A B C, …"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from beamsearch.judge.capture.ahead import Form
from beamsearch.judge.rejection import FIRST_CALL_S, Rejected, guarded
from beamsearch.judge.runner.client import Replay, RunnerProcess
from beamsearch.judge.runner.reference import COMPILE_MODES, problem_message
from beamsearch.judge.timing.timing import (
    Sample,
    TimedInputs,
    believe,
    checked_share,
    prepare,
    time_calls,
    undisturbed,
)
from beamsearch.problem.problem import Problem
from beamsearch.records.job import Subject
from beamsearch.records.verdict import Stage

TUNING_S = 300.0
"""Seconds torch.compile may take to tune itself; what it finds is kept for the next time."""
ROUNDS = 10
"""Turns of each subject: a drift of the clocks then meets all alike."""
TURN_MS = 10.0
"""Kernel time of one turn."""


class Comparer:
    """One comparison. Needs the lane. Baselines have a runner of their own, in which there is never
    a candidate's code."""

    def __init__(
        self, problem: Problem, timed: TimedInputs, open_runner: Callable[..., RunnerProcess]
    ) -> None:
        self._problem = problem
        self._timed = timed
        self._open = open_runner
        self._runners: dict[bool, RunnerProcess] = {}
        self._replays: dict[str, Replay] = {}
        self._estimates: dict[str, float] = {}
        self.turns: dict[str, list[list[Sample]]] = {}
        self.plain: dict[str, list[Sample]] = {}
        """The same calls without a graph."""
        self.failed: dict[str, str] = {}

    def run(self, subjects: list[Subject], forms: Mapping[str, Form]) -> None:
        """Time all subjects; `forms` are the kernels' plans, by name."""
        try:
            for subject in subjects:
                self._attempt(subject.name, lambda s=subject: self._prepare(s, forms))  # type: ignore[misc]
            slowest = max(self._estimates.values(), default=1.0)
            rounds = ROUNDS if slowest < 30 else ROUNDS // 2
            undisturbed(lambda: self._take_turns(rounds))
        finally:
            for runner in self._runners.values():
                runner.end()

    def _take_turns(self, rounds: int) -> None:
        """So many turns of all that are still in. Raises Shared."""
        for name in self._replays:
            self.turns[name], self.plain[name] = [], []
        for _ in range(rounds):
            for name in list(self._replays):
                self._attempt(name, lambda n=name: self._turn(n, rounds))  # type: ignore[misc]
        for name in list(self._replays):
            self._attempt(name, lambda n=name: self._believe(n))  # type: ignore[misc]

    @property
    def graphs(self) -> dict[str, bool]:
        """Whether a subject was timed as a graph."""
        return {name: not replay.no_graph for name, replay in self._replays.items()}

    def _attempt(self, name: str, action: Callable[[], None]) -> None:
        try:
            action()
        except Rejected as rejection:
            self.failed[name] = rejection.reason
            lost = self._replays.pop(name, None)
            self.turns.pop(name, None)
            self._timed.sets.mend()  # the others must not find what it wrote
            if lost is not None and not lost.runner.alive:
                self._lose(lost.runner)

    def _lose(self, runner: RunnerProcess) -> None:
        """What else ran in a runner that is gone cannot go on."""
        for name, replay in list(self._replays.items()):
            if replay.runner is runner:
                self.failed[name] = "the process that timed it was lost by another subject's fault"
                del self._replays[name]
                self.turns.pop(name, None)
        self._runners = {kind: r for kind, r in self._runners.items() if r is not runner}

    def _runner(self, *, baseline: bool) -> RunnerProcess:
        if baseline not in self._runners:
            env = baseline_caches() if baseline else {}
            self._runners[baseline] = self._open("baselines" if baseline else "comparison", env)
        return self._runners[baseline]

    def _prepare(self, subject: Subject, forms: Mapping[str, Form]) -> None:
        """Load, bind, check twice, and estimate. Raises Rejected."""
        name = subject.name
        runner = self._runner(baseline=subject.kind != "kernel")
        replay = self._replays[name] = Replay(runner, name)
        if subject.kind == "kernel":
            form = forms[name]
            replay.touched = form.plan.touched
            guarded(
                Stage.TIMING,
                "loading",
                lambda: runner.load(name, form.plan, form.compiled, FIRST_CALL_S),
            )
            self._estimates[name] = prepare(replay, self._timed, FIRST_CALL_S)
        else:
            problem, mode = problem_message(self._problem), COMPILE_MODES[subject.kind]
            guarded(
                Stage.LOAD,
                "reference",
                lambda: runner.ask("reference", TUNING_S, name=name, problem=problem, mode=mode),
            )
            self._estimates[name] = prepare(replay, self._timed, TUNING_S)

    def _turn(self, name: str, rounds: int) -> None:
        """One of so many turns: as many calls as fit, and one without its graph.

        Raises Rejected.
        """
        count = max(2, min(10, round(TURN_MS / max(self._estimates[name], 1e-3))))
        replay, timed = self._replays[name], self._timed
        share = checked_share(rounds * count)
        self.turns[name].append(time_calls(replay, timed, count, share))
        self.plain[name] += time_calls(replay, timed, 1, checked_share(rounds), plain=True)

    def _believe(self, name: str) -> None:
        """The clocks agree, as where a candidate is timed alone. Raises Rejected, and Shared."""
        samples = [sample for turn in self.turns[name] for sample in turn]
        believe(samples, self._timed.flush_ms, self._replays[name].empty)


def baseline_caches() -> dict[str, str]:
    """Where torch.compile keeps what it tuned, so that a machine pays for it once."""
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "beamsearch"
    folders = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}
    return {name: str(root / folder) for name, folder in folders.items()}

"""Forms of one kernel timed against each other by successive halving: few calls of many at first.

A form is the kernel with other constants. Results are compared all the same, since a block size may
be part of what a kernel computes. No verdict comes of this: what is fast is judged afterwards.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping

from beamsearch.judge.capture.ahead import Form
from beamsearch.judge.rejection import FIRST_CALL_S, Rejected, guarded
from beamsearch.judge.runner.client import Replay, RunnerProcess
from beamsearch.judge.timing.timing import TimedInputs, prepare, time_calls
from beamsearch.records.job import Sweep
from beamsearch.records.verdict import Stage

FIRST_CALLS = 4
"""Timed calls of each form at first: the medians of four calls on an H200 are within a few percent,
and forms differ by tens."""
LATER_CALLS = 12
"""Of those that are left, in each of two turns."""
CHECKED_SHARE = 0.1
"""Part of them whose results are compared, at random."""
KEPT = 4
"""One in four goes on, and at least two."""


class Sweeper:
    """One sweep. Needs the lane."""

    def __init__(
        self,
        forms: Mapping[str, Form],
        timed: TimedInputs,
        runner: Callable[[], RunnerProcess],
        mend: Callable[[], None],
    ) -> None:
        """`runner` gives the runner, another one after a fault."""
        self._forms = forms
        self._timed = timed
        self._runner = runner
        self._mend = mend
        self._times: dict[str, list[float]] = {}
        self.failed: dict[str, str] = {}

    def run(self) -> Sweep:
        """Both rungs. The first form, the kernel as it is, is in each; where it cannot be timed
        again, none has anything to beat."""
        left = list(self._forms)
        for name in left:
            self._try(name, FIRST_CALLS)
        timed = [name for name in left if name not in self.failed]
        timed.sort(key=lambda name: self._times[name][-1])
        left = list(dict.fromkeys([*left[:1], *timed[: max(2, len(timed) // KEPT)]]))
        turns: dict[str, list[float]] = {}
        for order in (left, left[::-1]):  # whatever drifts, drifts for all
            for name in order:
                if name not in self.failed:
                    self._try(name, LATER_CALLS)
                    turns.setdefault(name, []).append(self._times[name].pop())
        for name, medians in turns.items():
            self._times[name].append(statistics.median(medians))
        times = {name: ms for name, ms in self._times.items() if name not in self.failed}
        return Sweep(times_ms=times, failed=self.failed)

    def _try(self, name: str, calls: int) -> None:
        """Time one turn of a form, or say why it has failed."""
        try:
            self._times.setdefault(name, []).append(self._turn(name, calls))
        except Rejected as rejection:
            self.failed[name] = rejection.reason
            self._times.setdefault(name, []).append(float("inf"))
            self._mend()

    def _turn(self, name: str, calls: int) -> float:
        """Median time of some calls in milliseconds, results checked. Raises Rejected."""
        runner, form = self._runner(), self._forms[name]
        try:
            guarded(
                Stage.TIMING,
                "loading",
                lambda: runner.load(name, form.plan, form.compiled, FIRST_CALL_S),
            )
            replay = Replay(runner, name, form.plan.touched)
            prepare(replay, self._timed)
            samples = time_calls(replay, self._timed, calls, CHECKED_SHARE)
        finally:
            runner.drop(name)
        return statistics.median(sample.ms for sample in samples)

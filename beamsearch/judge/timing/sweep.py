"""Forms of one kernel timed against each other: which launch parameters and block sizes gain."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from beamsearch.judge.capture.forms import Form, none_of
from beamsearch.judge.rejection import FIRST_CALL_S, GPU_CALL_S, Rejected
from beamsearch.judge.timing.timing import UNTIMED_CALLS, prepare, time_calls
from beamsearch.judge.verification.inputs import InputSet
from beamsearch.judge.verification.stages import Loader, bind, call_once
from beamsearch.records.job import Sweep
from beamsearch.records.verdict import Stage

SWEPT_CALLS = 4
"""Timed calls of each form at first: the medians of four calls on an H200 are within a few percent,
and forms differ by tens."""
LATER_CALLS = 12
"""Of those that are left, in each of two turns."""
GO_ON = 4
"""One in four goes on, and at least two."""
TUNING_CALLS = 5
"""Timed calls by which an autotuned kernel's configuration is chosen."""


@dataclass
class Sweeper:
    """Forms of one kernel, which is the kernel with other constants, timed against each other by
    successive halving: few calls of many at first. Needs the lane.

    Results are compared all the same, since a block size may be part of what a kernel computes: all
    forms' on one input set. No verdict comes of this: what is fast is judged afterwards.
    """

    forms: Mapping[str, Form]
    compared: InputSet
    timed: InputSet
    load: Loader
    _times: dict[str, list[float]] = field(default_factory=dict)
    _failed: dict[str, str] = field(default_factory=dict)

    def run(self) -> Sweep:
        """Both rungs. The first form, the kernel as it is, is in each; where it cannot be timed
        again, none has anything to beat."""
        left = list(self.forms)
        for name in left:
            self._try(name, SWEPT_CALLS)
        timed = [name for name in left if name not in self._failed]
        timed.sort(key=lambda name: self._times[name][-1])
        left = list(dict.fromkeys([*left[:1], *timed[: max(2, len(timed) // GO_ON)]]))
        turns: dict[str, list[float]] = {}
        for order in (left, left[::-1]):  # whatever drifts, drifts for all
            for name in order:
                if name not in self._failed:
                    self._try(name, LATER_CALLS)
                    turns.setdefault(name, []).append(self._times[name].pop())
        for name, medians in turns.items():
            self._times[name].append(statistics.median(medians))
        times = {name: ms for name, ms in self._times.items() if name not in self._failed}
        return Sweep(times_ms=times, failed=self._failed)

    def _try(self, name: str, calls: int) -> None:
        """Time one turn of a form, or say why it has failed."""
        try:
            self._times.setdefault(name, []).append(self._turn(name, calls))
        except Rejected as rejection:
            self._failed[name] = rejection.reason
            self._times.setdefault(name, []).append(float("inf"))
            self.timed.sets.mend()

    def _turn(self, name: str, calls: int) -> float:
        """Median time of some calls in milliseconds, of a form that is right. Raises Rejected."""
        assert self.timed.shared is not None
        with self.load(name, self.forms[name]) as replay, self.compared.handout() as handout:
            bind(replay, handout, GPU_CALL_S)
            call_once(replay, handout, Stage.TIMING, GPU_CALL_S)
            bind(replay, self.timed.shared, GPU_CALL_S)
            samples = time_calls(replay, self.timed, UNTIMED_CALLS + calls)[UNTIMED_CALLS:]
        return statistics.median(sample.ms for sample in samples)


def tuned(forms: Sequence[Form], timed: InputSet, load: Loader) -> dict[int, float]:
    """Milliseconds of an autotuned kernel's forms, by number: the best of few calls each. Needs the
    lane. Raises Rejected where none can be timed."""
    times: dict[int, float] = {}
    rejections: list[Rejected] = []
    for number, form in enumerate(forms):
        try:
            with load(f"form {number}", form) as replay:
                prepare(replay, timed, FIRST_CALL_S)
                times[number] = min(s.ms for s in time_calls(replay, timed, TUNING_CALLS))
        except Rejected as rejection:
            rejections.append(rejection)
            timed.sets.mend()
    if not times:
        raise none_of(forms, rejections[0])
    return times

"""How long a call takes: each on inputs that were never there before, in a runner of ours."""

from __future__ import annotations

import random
import secrets
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from beamsearch.errors import BeamsearchError
from beamsearch.gpu.stopwatch import QUEUED
from beamsearch.judge.rejection import GPU_CALL_S, Rejected, guarded
from beamsearch.judge.runner.client import Replay
from beamsearch.judge.verification.handout import Handout
from beamsearch.judge.verification.input_set import InputSet
from beamsearch.judge.verification.inputs import InputSets
from beamsearch.judge.verification.results import check_result
from beamsearch.judge.verification.stages import bind, call_once
from beamsearch.records.verdict import Outcome, Stage

_T = TypeVar("_T")

TARGET_MS = 100.0
"""Kernel time a candidate is given: enough calls for a median that repeats within a percent."""
FIRST_CALLS = 3
"""Calls by which the number of others is chosen; the first makes the graph."""
MISSED = 1e-3
"""Chance that a kernel stays unseen which leaves out half of its timed calls, as many as move the
median. It can count its calls, but whether one is compared is drawn when it is over."""
NAME = "timed"
CLOCK_SHARE = 0.15
"""Part of the events' time that the wall clock may show beside it: the host's own unsteadiness."""
CALL_MS = 0.5
"""What each call may show on the wall clock beside its events and its flushes."""
HICCUP_MS = 30.0
"""A pause of the host, once in a series."""
PAUSES_S = (1.0, 5.0, 25.0)
"""Before what was measured on a GPU that something else uses is measured again."""


class Shared(Exception):
    """Something else keeps the GPU busy, as calls of nothing show: no kernel's fault. Never leaves
    `undisturbed`."""


@dataclass(frozen=True)
class Sample:
    """One timed call, in milliseconds."""

    ms: float
    """By events around it on the GPU."""
    host_ms: float
    """By the wall clock, with what was left of the flushes before it."""


@dataclass
class TimedInputs:
    """The input set that timed calls are on, with new values for each of them."""

    sets: InputSets
    inputs: InputSet
    flush_ms: float
    """What one flush of the L2 takes at most."""
    draw: random.Random = field(default_factory=lambda: random.Random(secrets.randbits(64)))
    """Nobody outside the judge's process can know what it draws."""
    _seed: int | None = None

    @property
    def handout(self) -> Handout:
        """The set in shared memory."""
        assert self.inputs.shared is not None
        return self.inputs.shared

    def renew(self) -> None:
        """Values that nobody has seen, without their oracle."""
        if self._seed is None:
            self._seed = self.inputs.seed
        self.sets.renew(self.inputs, oracle=False)

    def expect(self) -> None:
        """The oracle of the values that are there."""
        self.sets.expect(self.inputs)

    def chooses(self, share: float) -> bool:
        """Whether a result is compared, of which this share is."""
        return self.draw.random() < share

    def restore(self) -> None:
        """The set as it was: what the next candidate is verified on does not depend on this."""
        if self._seed is not None:
            self.sets.renew(self.inputs, self._seed)
            self._seed = None


def repetitions(estimate_ms: float) -> int:
    """Calls to time: 10 to 40 as fit the target, 3 to 10 where a call takes above 30 ms."""
    fitting = round(TARGET_MS / max(estimate_ms, 1e-3))
    return max(3, fitting) if estimate_ms > 30 else max(10, min(40, fitting))


def checked_share(count: int) -> float:
    """Part of so many timed calls whose results are compared, each drawn for itself: were their
    number fixed, a kernel would know when the last is over."""
    return float(1 - MISSED ** (2 / max(2, count)))


def prepare(replay: Replay, timed: TimedInputs, first_s: float = GPU_CALL_S) -> float:
    """Bind a plan or reference for timing, see that it is right on new values, once more without
    making kept memory anew, and estimate a call's time in milliseconds. Raises Rejected."""
    bind(replay, NAME, timed.handout, first_s)
    for fresh in (True, False):
        timed.renew()
        timed.expect()
        replay.fresh = fresh
        call_once(replay, timed.sets, timed.inputs, timed.handout, Stage.TIMING, first_s, NAME)
    samples = [time_once(replay, timed, timeout_s=first_s) for _ in range(FIRST_CALLS)]
    return statistics.median(sample.ms for sample in samples)


def time_calls(
    replay: Replay, timed: TimedInputs, count: int, share: float, *, plain: bool = False
) -> list[Sample]:
    """Timed calls of what is prepared; this share of the results, nobody knows which, is compared.

    Raises Rejected where one is wrong.
    """
    return [time_once(replay, timed, share=share, plain=plain) for _ in range(count)]


def time_once(
    replay: Replay,
    timed: TimedInputs,
    *,
    share: float = 0.0,
    plain: bool = False,
    timeout_s: float = GPU_CALL_S,
) -> Sample:
    """One timed call on new values: by its graph where it has one, unless `plain`. `share` is the
    chance that its result is compared, of which nothing can be seen before it is over: no oracle is
    made and no memory poisoned for it. Raises Rejected."""
    timed.renew()
    answer = guarded(
        Stage.TIMING, "timing", lambda: replay.time(NAME, plain=plain, timeout_s=timeout_s)
    )
    if timed.chooses(share):
        timed.expect()
        timed.handout.poison()
        told = guarded(
            Stage.TIMING,
            "timing",
            lambda: replay.ask(
                "collect",
                timeout_s,
                outputs=timed.handout.outputs,
                storages=timed.handout.output_storages,
            ),
        )
        where = "in a timed call"
        check_result(
            told, timed.inputs, timed.sets, timed.handout, Stage.TIMING, where, replay.touched
        )
    return Sample(float(answer["ms"]), float(answer["host_ms"]))


def believe(
    samples: Sequence[Sample], flush_ms: float, empty: Callable[[int], Sequence[float]]
) -> None:
    """The GPU's events and the wall clock agree: events lie in memory that a kernel could find.

    `empty` times so many calls of nothing by the wall clock. Raises Rejected where the clocks do
    not agree, Shared where they would not for calls of nothing either.
    """
    count = len(samples)
    shown = sum(sample.host_ms for sample in samples)
    claimed = sum(sample.ms for sample in samples)
    most = count * ((QUEUED + 1) * flush_ms + CALL_MS) + HICCUP_MS
    if claimed <= shown <= (1 + CLOCK_SHARE) * claimed + most:
        return
    if shown > claimed:
        nothing = sum(guarded(Stage.TIMING, "timing", lambda: empty(count)))
        if nothing > most:
            raise Shared(f"{count} calls of nothing take {nothing:.4g} ms, not {most:.4g} at most")
    reason = (
        f"{count} calls take {claimed:.4g} ms by the GPU's events and {shown:.4g} ms by the clock, "
        "which does not fit"
    )
    raise Rejected(Outcome.DISALLOWED, Stage.TIMING, reason)


def undisturbed(measure: Callable[[], _T]) -> _T:
    """What `measure` gives while nothing else uses the GPU. Raises BeamsearchError where something
    does for longer than all pauses together."""
    for pause_s in PAUSES_S:
        try:
            return measure()
        except Shared:
            time.sleep(pause_s)
    try:
        return measure()
    except Shared as shared:
        raise BeamsearchError(
            f"something else uses the GPU, so that nothing can be timed on it: {shared}; end it "
            "(`nvidia-smi` lists the processes), and try again"
        ) from None

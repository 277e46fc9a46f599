"""How long a call takes: each on inputs that were never there before, in a runner of ours."""

import secrets
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from beamsearch.errors import BeamsearchError
from beamsearch.gpu.stopwatch import QUEUED
from beamsearch.judge.arguments import poison_all
from beamsearch.judge.rejection import GPU_CALL_S, Rejected, guarded
from beamsearch.judge.runner.client import Replay
from beamsearch.judge.verification.inputs import InputSet
from beamsearch.judge.verification.stages import bind, call_once, check_result
from beamsearch.records.verdict import Outcome, Stage

_T = TypeVar("_T")

TARGET_MS = 25.0
"""Kernel time a candidate is given: enough calls for a median that repeats within a percent. The
new values before each call take longer than the call."""
FIRST_CALLS = 3
"""Calls by which the number of others is chosen; the first makes the graph."""
UNTIMED_CALLS = 2
"""Calls ahead of the timed ones; the first makes the graph."""
MISSED = 1e-3
"""Chance that a kernel stays unseen which leaves out half of its timed calls, as many as move the
median. It can count its calls, but whether one is compared is drawn when it is over."""
CLOCK_SHARE = 0.15
"""Part of the events' time that the wall clock may show beside it: the host's own unsteadiness."""
CALL_MS = 0.5
"""What each call may show on the wall clock beside its events and its flushes."""
HICCUP_MS = 30.0
"""A pause of the host, once in a series."""
DISAGREEMENTS = 3
"""Series in which the clocks disagree, from which on that is no accident: seen once for an honest
kernel, beside four runs that compiled on 32 cores."""
PAUSES_S = (1.0, 5.0, 25.0)
"""Before what was measured on a GPU that something else uses is measured again."""


class Shared(Exception):
    """Something else keeps the GPU or the cores busy: no kernel's fault, as far as is known. Never
    leaves `undisturbed`."""


@dataclass(frozen=True)
class Sample:
    """One timed call, in milliseconds."""

    ms: float
    """By events around it on the GPU."""
    host_ms: float
    """By the wall clock, with what was left of the flushes before it."""


def repetitions(estimate_ms: float) -> int:
    """Calls to time: 10 to 40 as fit the target, 3 to 10 where a call takes above 30 ms."""
    fitting = round(TARGET_MS / max(estimate_ms, 1e-3))
    return max(3, fitting) if estimate_ms > 30 else max(10, min(40, fitting))


def checked_share(count: int) -> float:
    """Part of so many timed calls whose results are compared, each drawn for itself: were their
    number fixed, a kernel would know when the last is over."""
    return float(1 - MISSED ** (2 / max(2, count)))


def begin(replay: Replay, timed: InputSet, timeout_s: float) -> None:
    """A reference's first call. In it libraries and torch.compile try what there is memory for, and
    keep what was fastest: no oracle takes any, and the result is not looked at. Raises Rejected."""
    assert timed.shared is not None
    bind(replay, timed.shared, timeout_s)
    timed.renew()
    timed.sets.release()
    guarded(Stage.TIMING, "timing", replay.time, plain=True, timeout_s=timeout_s)


def prepare(replay: Replay, timed: InputSet, first_s: float) -> float:
    """Bind a plan or reference for timing, see that it is right on new values, once more without
    making the memory between calls anew, and estimate a call's time in milliseconds. Raises
    Rejected."""
    assert timed.shared is not None
    bind(replay, timed.shared, first_s)
    for fresh in (True, False):
        timed.renew()
        timed.expect()
        replay.fresh = fresh
        call_once(replay, timed.shared, Stage.TIMING, first_s)
    samples = time_calls(replay, timed, FIRST_CALLS, timeout_s=first_s)
    return statistics.median(sample.ms for sample in samples)


def time_calls(
    replay: Replay,
    timed: InputSet,
    count: int,
    share: float = 0.0,
    *,
    plain: bool = False,
    timeout_s: float = GPU_CALL_S,
) -> list[Sample]:
    """Timed calls on new values of what is prepared: by its graph where it has one, unless `plain`.
    `share` is the chance that a result is compared, of which nothing can be seen before the call is
    over: no oracle is made and no memory poisoned for it. Raises Rejected."""
    samples: list[Sample] = []
    draw, handout = secrets.SystemRandom(), timed.shared  # nobody knows what it draws
    assert handout is not None
    took_memory = True
    for _ in range(count):
        timed.renew()
        if took_memory:
            timed.sets.release(only_if_short=True)
            took_memory = False  # the next values take the same again
        answer = guarded(Stage.TIMING, "timing", replay.time, plain=plain, timeout_s=timeout_s)
        samples.append(Sample(float(answer["ms"]), float(answer["host_ms"])))
        if draw.random() < share:
            timed.expect()
            poison_all(handout.results)
            wanted = handout.wanted
            told = guarded(Stage.TIMING, "timing", replay.ask, "collect", timeout_s, **wanted)
            check_result(replay, told, handout, Stage.TIMING, "in a timed call")
            took_memory = True
    return samples


@dataclass
class Clocks:
    """Whether the GPU's events and the wall clock agree about one kernel: events lie in memory that
    a kernel could find."""

    disagreed: int = 0
    """Series so far in which they did not."""

    def believe(
        self, samples: Sequence[Sample], flush_ms: float, empty: Callable[[int], Sequence[float]]
    ) -> None:
        """Look at a series. `empty` times so many calls of nothing by the wall clock.

        Raises Shared where the clocks do not agree: it is measured again, and counts only where
        they do, so that the cores being busy for a moment is no kernel's fault. Raises Rejected
        where they disagreed several times, and calls of nothing showed no reason.
        """
        count = len(samples)
        shown = sum(sample.host_ms for sample in samples)
        claimed = sum(sample.ms for sample in samples)
        most = count * ((QUEUED + 1) * flush_ms + CALL_MS) + HICCUP_MS
        if claimed <= shown <= (1 + CLOCK_SHARE) * claimed + most:
            return
        if shown > claimed:
            nothing = sum(guarded(Stage.TIMING, "timing", empty, count))
            if nothing > most:
                raise Shared(f"{count} calls of nothing take {nothing:.4g} ms, not {most:.4g}")
        reason = (
            f"{count} calls take {claimed:.4g} ms by the GPU's events and {shown:.4g} ms by the "
            "clock, which does not fit"
        )
        self.disagreed += 1
        if self.disagreed < DISAGREEMENTS:
            raise Shared(reason)
        raise Rejected(Outcome.DISALLOWED, Stage.TIMING, f"{reason}, {self.disagreed} times")


def undisturbed(measure: Callable[[], _T]) -> _T:
    """What `measure` gives while nothing else uses the GPU. Raises BeamsearchError where something
    does for longer than all pauses together."""
    for pause_s in PAUSES_S:
        with suppress(Shared):
            return measure()
        time.sleep(pause_s)
    try:
        return measure()
    except Shared as shared:
        raise BeamsearchError(
            f"something else uses the GPU, so that nothing can be timed on it: {shared}; end it "
            "(`nvidia-smi` lists the processes), and try again"
        ) from None

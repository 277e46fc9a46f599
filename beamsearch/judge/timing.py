"""How long a call takes: repetitions chosen by the judge, on values that nobody has seen."""

from __future__ import annotations

import math
import random
import secrets
import statistics
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from beamsearch.judge.agreement import (
    Batch,
    WatchedCall,
    clocks_disagree,
    describe,
    misconduct,
    remembers,
    shortcut,
    works_ahead,
)
from beamsearch.judge.inputs import Handout, InputSet, InputSets
from beamsearch.judge.processes import CandidateProcess
from beamsearch.judge.verify import (
    CHANGED_INPUTS,
    FIRST_CALL_S,
    Log,
    Rejected,
    check_result,
    guarded,
    parsed,
)
from beamsearch.records.verdict import Outcome, Stage

TARGET_MS = 300.0
"""Kernel time a candidate is given: enough calls for a median that repeats within a percent."""
WARMUP_MS = 60.0
"""Kernel time before timing, for the clocks to settle."""
BATCHES = 6
"""Batches the calls are dealt into; each begins with new values and ends with a checked result."""
WATCHED = 6
"""Calls whose kernels are listed; one of them is the first on new values."""


@dataclass(frozen=True)
class TimedSets:
    """The input sets that timed calls rotate through."""

    sets: InputSets
    inputs: list[InputSet]
    names: list[str]
    flush_ms: float
    """What one flush of the L2 takes at most."""
    draw: random.Random = field(default_factory=lambda: random.Random(secrets.randbits(64)))
    """Nobody outside the judge's process can know what it draws."""
    seeds: dict[int, int] = field(default_factory=dict)
    """Seeds of the sets that have other values for now."""

    def restore(self) -> None:
        """The sets as they were: what the next candidate is verified on does not depend on this."""
        for number, seed in self.seeds.items():
            self.sets.renew(self.inputs[number], seed)
        self.seeds.clear()

    def handout(self, number: int) -> tuple[InputSet, Handout]:
        """A set and its shared memory."""
        handout = self.inputs[number].shared
        assert handout is not None
        return self.inputs[number], handout

    def renew(self) -> int:
        """Give one of the sets new values in place; its number."""
        number = self.draw.randrange(len(self.inputs))
        self.seeds.setdefault(number, self.inputs[number].seed)
        self.sets.renew(self.inputs[number])
        return number

    def check_unchanged(self) -> None:
        """Every set is what was handed out, also those whose call was not the last. Repairs, and
        raises Rejected where one is not."""
        changed = [item for item in self.inputs if item.shared and item.modified(item.shared)]
        for inputs in changed:
            self.sets.repair(inputs)
        if changed:
            labels = ", ".join(inputs.label for inputs in changed)
            reason = f"in timed calls on {labels}: {CHANGED_INPUTS}"
            raise Rejected(Outcome.WRONG, Stage.TIMING, reason)

    def schedule(self, count: int) -> list[int]:
        """That many calls, by number of their set: rounds over all sets, each in a new order."""
        numbers: list[int] = []
        while len(numbers) < count:
            numbers += self.draw.sample(range(len(self.inputs)), len(self.inputs))
        return numbers[:count]


def repetitions(estimate_ms: float) -> int:
    """Calls to time: 10 to 100 as fit the target, 3 to 10 where a call takes above 30 ms."""
    fitting = round(TARGET_MS / max(estimate_ms, 1e-3))
    return max(3, fitting) if estimate_ms > 30 else max(10, min(100, fitting))


def warmups(estimate_ms: float) -> int:
    """Calls before the timed ones."""
    return max(1, min(50, round(WARMUP_MS / max(estimate_ms, 1e-3))))


def deal(count: int, draw: random.Random) -> list[int]:
    """Lengths of the batches: at least one call each, and no telling where one ends."""
    batches = min(BATCHES, count)
    cuts = sorted(draw.sample(range(1, count), batches - 1))
    return [end - begin for begin, end in zip([0, *cuts], [*cuts, count], strict=True)]


def time_calls(process: CandidateProcess, timed: TimedSets) -> list[float]:
    """Times of a candidate's calls in milliseconds, every batch's last result checked.

    Raises Rejected where a result is wrong or the clocks do not agree.
    """
    first = run_batch(process, timed, timed.schedule(3), 0, 1, FIRST_CALL_S)
    estimate = statistics.median(first.times_ms)
    for attempt in (1, 2):
        batches = []
        for number, length in enumerate(deal(repetitions(estimate), timed.draw)):
            warmup = warmups(estimate) if number == 0 else 2
            new = timed.renew()
            batches.append(fresh_batch(process, timed, length, warmup, estimate, new))
        reason = disbelieved(batches, timed.flush_ms)
        if reason is None:
            break
        if attempt == 2:  # once may be this machine's doing
            raise Rejected(Outcome.DISALLOWED, Stage.TIMING, reason)
    return [time_ms for batch in batches for time_ms in batch.times_ms]


def disbelieved(batches: Sequence[Batch], flush_ms: float) -> str | None:
    """Why these times are not believed, or none."""
    return (
        clocks_disagree(batches, flush_ms) or remembers(batches) or works_ahead(batches, flush_ms)
    )


def fresh_batch(
    process: CandidateProcess, timed: TimedSets, length: int, warmup: int, estimate: float, new: int
) -> Batch:
    """A batch in which the set `new` has values that were never there; the last result is checked.

    Warm-up calls are on another set, where there is one. Raises Rejected.
    """
    schedule = timed.schedule(length)
    warm = (new + 1) % len(timed.inputs)
    timeout_s = 10.0 + 5 * (length + warmup) * (estimate + timed.flush_ms + 1) / 1e3
    batch = run_batch(process, timed, schedule, warm, warmup, timeout_s, check=True)
    if warm != new and new in schedule:
        batch.first_sight[schedule.index(new)] = True
    return batch


def run_batch(
    process: CandidateProcess,
    timed: TimedSets,
    schedule: Sequence[int],
    warm: int,
    warmup: int,
    timeout_s: float,
    *,
    check: bool = False,
) -> Batch:
    """One batch: warm-up calls on the set `warm`, then the schedule's, the last of them with
    `check` compared. Raises Rejected."""
    names = [timed.names[number] for number in schedule]
    inputs, handout = timed.handout(schedule[-1])
    if check:
        handout.poison()
    began = time.monotonic()
    answer = _ask(process, "time", timeout_s, warmup=warmup, warm=timed.names[warm], schedule=names)
    span_ms = (time.monotonic() - began) * 1e3
    times, warm_ms = answer.get("times_ms"), answer.get("warm_ms")
    good = isinstance(times, list) and len(times) == len(schedule)
    if not good or not all(
        isinstance(t, int | float) and math.isfinite(t) and t > 0 for t in [*(times or []), warm_ms]
    ):
        raise Rejected(Outcome.CRASHED, Stage.TIMING, "its process reported no usable times")
    if check:
        answer = _ask(
            process,
            "collect",
            timeout_s,
            outputs=handout.outputs,
            storages=handout.output_storages,
        )
        check_result(answer, inputs, timed.sets, handout, Stage.TIMING, "in a timed call")
    return Batch(
        [float(t) for t in times or []],
        [False] * len(schedule),
        span_ms,
        warmup,
        float(warm_ms or 0),
    )


def watch_calls(
    process: CandidateProcess,
    timed: TimedSets,
    own: Collection[str],
    time_ms: float,
    log: Log,
    *,
    must_tell: bool,
) -> None:
    """List the kernels of a few calls and see that they are an honest candidate's.

    own: names of its own kernels. must_tell: CUPTI works here. Raises Rejected.
    """
    for attempt in (1, 2):
        new = timed.renew()
        schedule = timed.schedule(WATCHED)
        inputs, handout = timed.handout(schedule[-1])
        handout.poison()
        names = [timed.names[number] for number in schedule]
        answer = _ask(process, "watch", FIRST_CALL_S, schedule=names)
        if missing := answer.get("missing"):
            if must_tell:
                raise Rejected(
                    Outcome.DISALLOWED,
                    Stage.TIMING,
                    f"its process says that CUPTI does not work ({missing}), as it does here",
                )
            log.not_checked.append(f"which kernels ran: CUPTI does not tell ({missing})")
            return
        told = answer.get("calls")
        if not isinstance(told, list) or len(told) != WATCHED:
            raise Rejected(Outcome.CRASHED, Stage.TIMING, "its process reported no kernels")
        calls = [parsed(WatchedCall, call, Stage.TIMING) for call in told]
        if reason := misconduct(calls, own, time_ms):
            raise Rejected(Outcome.DISALLOWED, Stage.TIMING, reason)
        answer = _ask(
            process,
            "collect",
            FIRST_CALL_S,
            outputs=handout.outputs,
            storages=handout.output_storages,
        )
        check_result(answer, inputs, timed.sets, handout, Stage.TIMING, "in a watched call")
        reason = shortcut(calls, schedule.index(new))
        if reason is None:
            break
        if attempt == 2:  # once may be this machine's doing
            raise Rejected(Outcome.DISALLOWED, Stage.TIMING, reason)
    log.passed(Stage.TIMING, "kernels", describe(calls, own))


def _ask(process: CandidateProcess, op: str, timeout_s: float, **arguments: Any) -> dict[str, Any]:
    asking: Callable[[], dict[str, Any]] = lambda: process.ask(op, timeout_s, **arguments)  # noqa: E731
    return guarded(Stage.TIMING, "timing", asking)

"""How long a call takes: repetitions chosen by the judge, two clocks compared, results checked."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from beamsearch.judge.inputs import Handout, InputSet, InputSets
from beamsearch.judge.processes import CandidateProcess
from beamsearch.judge.verify import Rejected, check_result, guarded
from beamsearch.records.measurement import Measurement
from beamsearch.records.verdict import Outcome, Stage

TARGET_MS = 300.0
"""Kernel time a candidate is given: enough calls for a median that repeats within a percent."""
WARMUP_MS = 60.0
"""Kernel time before timing, for the clocks to settle."""
FIRST_CALL_S = 60.0
"""Seconds for the first timed calls, in which a candidate may still tune itself."""
PER_CALL_MS = 2.0
"""What a call may take beside the kernel: the L2 flushed, the launch, the Python around it."""


@dataclass(frozen=True)
class Lap:
    """What one batch of timed calls gave."""

    times_ms: list[float]

    @property
    def median_ms(self) -> float:
        """The middle time."""
        return statistics.median(self.times_ms)


@dataclass(frozen=True)
class TimedSets:
    """The input sets that timed calls rotate through; the last call runs on the last of them."""

    sets: InputSets
    inputs: list[InputSet]
    names: list[str]

    @property
    def last(self) -> tuple[InputSet, Handout]:
        """The set whose result is checked, and its shared memory."""
        handout = self.inputs[-1].shared
        assert handout is not None
        return self.inputs[-1], handout


def repetitions(estimate_ms: float) -> int:
    """Calls to time: 10 to 100 as fit the target, 3 to 10 where a call takes above 30 ms."""
    fitting = round(TARGET_MS / max(estimate_ms, 1e-3))
    return max(3, fitting) if estimate_ms > 30 else max(10, min(100, fitting))


def warmups(estimate_ms: float) -> int:
    """Calls before the timed ones."""
    return max(1, min(50, round(WARMUP_MS / max(estimate_ms, 1e-3))))


def time_calls(process: CandidateProcess, timed: TimedSets, timeout_s: float) -> Lap:
    """Estimate, choose repetitions, time, compare the clocks, check the last result.

    Raises Rejected.
    """
    estimate = lap(process, timed, warmup=1, count=3, timeout_s=timeout_s).median_ms
    count, warmup = repetitions(estimate), warmups(estimate)
    timeout_s = 10.0 + 3 * (count + warmup) * (estimate + PER_CALL_MS) / 1e3
    for attempt in (1, 2):
        began = time.monotonic()
        result = lap(process, timed, warmup=warmup, count=count, timeout_s=timeout_s, check=True)
        span_ms = (time.monotonic() - began) * 1e3
        reason = clocks_disagree(result.times_ms, span_ms, warmup)
        if reason is None:
            break
        if attempt == 2:  # once may be this machine's doing
            raise Rejected(Outcome.DISALLOWED, Stage.TIMING, reason)
    return result


def lap(
    process: CandidateProcess,
    timed: TimedSets,
    *,
    warmup: int,
    count: int,
    timeout_s: float,
    check: bool = False,
) -> Lap:
    """One batch; with `check`, the last call's result is compared. Raises Rejected."""
    inputs, handout = timed.last
    if check:
        handout.poison()
    answer: dict[str, Any] = guarded(
        Stage.TIMING,
        "timing",
        lambda: process.ask(
            "time",
            timeout_s,
            names=timed.names,
            warmup=warmup,
            count=count,
            outputs=handout.outputs if check else [],
            storages=handout.output_storages if check else [],
        ),
    )
    times = answer.get("times_ms")
    good = isinstance(times, list) and len(times) == count
    if not good or not all(
        isinstance(t, int | float) and math.isfinite(t) and t > 0 for t in times or []
    ):
        raise Rejected(Outcome.CRASHED, Stage.TIMING, "its process reported no usable times")
    if check:
        check_result(answer, inputs, timed.sets, handout, Stage.TIMING, "in the last timed call")
    return Lap([float(t) for t in times or []])


def clocks_disagree(times_ms: Sequence[float], span_ms: float, warmup: int) -> str | None:
    """Why the times from the candidate's process do not fit the judge's own clock, or none."""
    total = sum(times_ms)
    if total > span_ms:
        return (
            f"its events add up to {total:.4g} ms, but the judge's clock saw {span_ms:.4g} ms pass"
        )
    calls = len(times_ms) + warmup
    accounted = total * calls / len(times_ms) + calls * PER_CALL_MS
    # Twice, and half a second for a busy machine: this is for times that are plainly not these.
    if span_ms > 2 * accounted + 500:
        return (
            f"its events account for {total:.4g} ms of the {span_ms:.4g} ms that the judge's clock "
            "saw pass: work is done outside the timed calls"
        )
    return None


def to_measurement(times_ms: Sequence[float], gpu: str, uuid: str, visit: str) -> Measurement:
    """Median, 20th and 80th percentile."""
    fifths = statistics.quantiles(times_ms, n=5, method="inclusive")
    return Measurement(
        source="measured",
        time_ms=statistics.median(times_ms),
        p20_ms=fifths[0],
        p80_ms=fifths[3],
        count=len(times_ms),
        gpu=gpu,
        gpu_uuid=uuid,
        visit=visit,
    )

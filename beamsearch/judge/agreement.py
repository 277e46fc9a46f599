"""Whether what was measured fits together: three clocks, what the GPU did, and what it could do.

Pure functions; each gives the reason why a time is not believed, or none.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from beamsearch.problem import LeastWork
from beamsearch.records.record import Record
from profiling.gpus import Gpu
from profiling.roofline import matrix_rate

CLOCK_SHARE = 0.15
"""Part of the events' time that the judge's clock may show beside it: the host's own unsteadiness;
an honest kernel shows under 5% on an H200."""
CALL_MS = 0.1
"""What each call may show on the judge's clock beside its events and its flush: Python's part."""
HICCUP_MS = 30.0
"""A pause of the host, once in a batch."""
FLUSH_SHARE = 0.5
"""Part of the datasheet's bandwidth at which the L2 is flushed, at least; an H200 reaches 0.7."""

SEEN_SHARE = 1.2
"""How much longer calls on values never seen before may take than the others. Both do the same
work; the median of six such calls is within 3% of the others' on an H200."""
SEEN_MS = 0.02
"""The same in milliseconds, for kernels so short that the launch is most of their time."""

WARM_SHARE = 1.3
WARM_MS = 0.5
"""How much longer warm-up calls may take than timed ones, and what a batch's may take beyond that:
the first of them begins with cold caches, in Python too, and the last is waited for."""

SHORTCUT_SHARE = 1.15
SHORTCUT_MS = 0.001
"""The same for the kernels alone, in one call: theirs repeat within a microsecond."""

LIBRARY_SHARE = 1 / 3
"""Part of the kernels' time that may be library or framework computation. A kernel that leaves a
last sum over partial results to PyTorch stays below it (a fifth to a quarter on an H200); one that
leaves the operation there, and launches a Triton kernel for show, does not."""
FOREIGN_SHARE = 0.85
"""Part of the kernels' time outside its own kernels, copies and fills included: a weight repacked
at each call, a view made contiguous (up to 62% in honest kernels on an H200). Above it, moving data
about is the work, and it is not the kernel's."""
EVENT_SHARE = 0.9
"""Part of the kernels' own time that the events must cover: the rest is clock granularity."""
EVENT_MS = 0.01

BEATEN = 0.95
"""Part of the least time that the memory needs below which a time is impossible: the datasheet's
bandwidth is never reached, but the amount that stays in the L2 is known only roughly."""


class Activity(Record):
    """One thing that the GPU did."""

    kind: Literal["kernel", "copy", "fill"]
    name: str
    stream: int
    graph: bool
    """Whether a CUDA graph launched it."""
    start_ns: int
    end_ns: int


class WatchedCall(Record):
    """What the GPU did before a call (the flush alone, where all is well) and during it."""

    before: list[Activity]
    during: list[Activity]


@dataclass(frozen=True)
class Batch:
    """One batch of timed calls."""

    times_ms: list[float]
    """By the events."""
    first_sight: list[bool]
    """Whether a call was the first on values that were never there before."""
    span_ms: float
    """By the judge's clock, from the request to the answer."""
    warmup: int
    warm_ms: float = 0.0
    """Warm-up calls and their flushes, by the events."""


def clocks_disagree(batches: Sequence[Batch], flush_ms: float) -> str | None:
    """Why the events do not fit the judge's own clock. `flush_ms`: of one flush, at most."""
    total = sum(sum(batch.times_ms) for batch in batches)
    span = sum(batch.span_ms for batch in batches)
    if total > span:
        return f"its events add up to {total:.4g} ms, but the judge's clock saw {span:.4g} ms pass"
    timed = sum(len(batch.times_ms) for batch in batches)
    calls = timed + sum(batch.warmup for batch in batches)
    accounted = total * calls / timed
    allowed = (calls + len(batches)) * (flush_ms + CALL_MS) + HICCUP_MS
    if span > (1 + CLOCK_SHARE) * accounted + allowed:
        return (
            f"its events account for {accounted:.4g} ms of the {span:.4g} ms that the judge's "
            "clock saw pass: work is done outside the timed calls"
        )
    return None


def remembers(batches: Sequence[Batch]) -> str | None:
    """Why the times look like those of results kept from earlier calls on the same values.

    A batch's calls up to the first on new values count together: any of them may have looked ahead.
    """
    new, seen = [], []
    for batch in batches:
        sighted = list(zip(batch.first_sight, batch.times_ms, strict=True))
        seen += [time for first, time in sighted if not first]
        if True in batch.first_sight:
            new.append(max(batch.times_ms[: batch.first_sight.index(True) + 1]))
    if len(new) < 3 or len(seen) < 3:  # too few for a median
        return None
    fresh, again = statistics.median(new), statistics.median(seen)
    if fresh <= SEEN_SHARE * again + SEEN_MS:
        return None
    return (
        f"takes {fresh:.4g} ms on values it has not seen before and {again:.4g} ms on values it "
        "has: results are kept between calls"
    )


def works_ahead(batches: Sequence[Batch], flush_ms: float) -> str | None:
    """Why the warm-up calls look like more work than the timed ones; `flush_ms` as above.

    The median over the batches: the machine may be slow in one, and a kernel that prepares results
    gains nothing from one.
    """
    usual = statistics.median(time for batch in batches for time in batch.times_ms)
    beyond = statistics.median(
        batch.warm_ms - batch.warmup * (WARM_SHARE * usual + flush_ms) for batch in batches
    )
    if beyond <= WARM_MS:
        return None
    return (
        f"its warm-up calls take {beyond:.4g} ms more in a batch than timed calls of {usual:.4g} "
        "ms explain: results are prepared before the timed calls"
    )


def shortcut(calls: Sequence[WatchedCall], first: int) -> str | None:
    """Why the kernels of the calls up to the one on new values (by its number) look like more than
    the others': any of them may have looked ahead."""
    fresh = max(busy_ms(call.during) for call in calls[: first + 1])
    again = statistics.median(busy_ms(call.during) for call in calls[first + 1 :])
    if fresh <= SHORTCUT_SHARE * again + SHORTCUT_MS:
        return None
    return (
        f"its kernels take {fresh:.4g} ms on values they have not seen before and {again:.4g} ms "
        "on values they have: results are kept between calls"
    )


def flush_ms(size: int, gpu: Gpu) -> float:
    """The most that filling a buffer of so many bytes takes."""
    return size / (FLUSH_SHARE * gpu.bandwidth_gb_s * 1e6)


def misconduct(calls: Sequence[WatchedCall], own: Collection[str], time_ms: float) -> str | None:
    """What in the list of kernels an honest candidate does not do, or none.

    own: names of the kernels that its source declares. time_ms: of a call, by its events.
    """
    if not calls:
        return "no call was watched"
    complaint = next(filter(None, (_one_call(call, own) for call in calls)), None)
    if complaint:
        return complaint
    kinds = [sorted((a.kind, a.name) for a in call.during) for call in calls]
    if any(kind != kinds[0] for kind in kinds):
        counts = ", ".join(str(len(kind)) for kind in kinds)
        return f"does not do the same work in every call: {counts} kernels, copies and fills"
    busy = statistics.median(busy_ms(call.during) for call in calls)
    if time_ms < EVENT_SHARE * busy - EVENT_MS:
        return (
            f"its kernels take {busy:.4g} ms where its events say {time_ms:.4g} ms: work is done "
            "outside the timed calls"
        )
    return _others_share(calls, own)


def _one_call(call: WatchedCall, own: Collection[str]) -> str | None:
    """What is wrong with what one call did."""
    flushes = [a for a in call.before if a.kind == "fill"]
    if len(call.before) != 1 or not flushes:
        names = sorted({a.name for a in call.before if a.kind != "fill"}) or ["fill"]
        return f"leaves work for after the call: {', '.join(names)[:200]}"
    if not call.during:
        return "runs nothing on the GPU in a call: results are kept between calls"
    if not any(a.kind == "kernel" and a.name in own for a in call.during):
        ran = sorted({a.name for a in call.during})
        return f"runs none of its own Triton kernels in a call, but {', '.join(ran)[:300]}"
    if any(a.graph for a in call.during):
        return "replays a CUDA graph: launch the kernels themselves"
    if any(a.stream != flushes[0].stream for a in call.during):
        return "works on another CUDA stream than the one it is called on"
    return None


def _others_share(calls: Sequence[WatchedCall], own: Collection[str]) -> str | None:
    """Whether the work is mostly not its own kernels'."""
    everything = [a for call in calls for a in call.during]
    total = sum(_length(a) for a in everything)
    others = [a for a in everything if a.kind != "kernel" or a.name not in own]
    computing = [a for a in others if not moves_only(a)]
    for limit, found, what in (
        (LIBRARY_SHARE, computing, "library kernels that are not its own"),
        (FOREIGN_SHARE, others, "copies, fills and library kernels"),
    ):
        share = sum(_length(a) for a in found) / max(1, total)
        if share > limit:
            names = sorted({a.name for a in found}, key=len)
            return (
                f"spends {share:.0%} of its time in {what} (at most {limit:.0%}): "
                f"{', '.join(names)[:300]}"
            )
    return None


def moves_only(activity: Activity) -> bool:
    """Whether it only moves or sets data: by PyTorch's names for such kernels."""
    words = ("copy", "Copy", "fill", "Fill", "memset", "memcpy", "CatArray")
    return activity.kind != "kernel" or any(word in activity.name for word in words)


def _length(activity: Activity) -> int:
    return activity.end_ns - activity.start_ns


def busy_ms(activities: Sequence[Activity]) -> float:
    """Time in which at least one of them ran."""
    busy, until = 0, 0
    for activity in sorted(activities, key=lambda a: a.start_ns):
        begin = max(until, activity.start_ns)
        busy += max(0, activity.end_ns - begin)
        until = max(until, activity.end_ns)
    return busy / 1e6


def describe(calls: Sequence[WatchedCall], own: Collection[str]) -> str:
    """The kernels of a call in one line."""
    during = calls[0].during
    mine = sum(_length(a) for a in during if a.name in own and a.kind == "kernel")
    total = max(1, sum(_length(a) for a in during))
    busy = statistics.median(busy_ms(call.during) for call in calls)
    many = f"{len(during)} launch{'es' * (len(during) != 1)}"
    return f"{many}, {busy:.4g} ms, {mine / total:.0%} in its own kernels"


def impossible(
    time_ms: float, work: LeastWork, gpu: Gpu, l2_bytes: int, needed: Callable[[], float]
) -> str | None:
    """Why the memory could not do it in this time.

    The datasheet's bandwidth, for every byte that must be read or written; what fits in the L2 may
    be written after the call. `needed`: part of the inputs that the outputs depend on, asked only
    where it matters.
    """
    bandwidth = gpu.bandwidth_gb_s * (1.5 if gpu.estimated else 1.0) * 1e6  # bytes in a ms

    def least(read: float) -> float:
        return BEATEN * max(0.0, read + work.bytes_written - l2_bytes) / bandwidth

    if time_ms >= least(work.bytes_read):
        return None
    limit = least(needed() * work.bytes_read)
    if time_ms >= limit:
        return None
    return (
        f"takes {time_ms:.4g} ms where reading its inputs and writing its outputs once takes at "
        f"least {limit:.4g} ms at {gpu.bandwidth_gb_s:.4g} GB/s: not all of the work is done"
    )


def below_arithmetic(time_ms: float, work: LeastWork, gpu: Gpu) -> str | None:
    """What there is to tell of a time in which the reference's FLOPs cannot be done at the
    datasheet's rate, or none.

    No proof against a kernel whose results are precise enough: zeros and other algorithms need
    fewer. The floor is then wrong.
    """
    least = work.flops / matrix_rate(gpu, work.products) / 1e9
    if gpu.estimated or time_ms >= least:
        return None
    return (
        f"below the floor: {time_ms:.4g} ms, where {work.flops / 1e9:.4g} GFLOP take at least "
        f"{least:.4g} ms in {work.products}; the floor is wrong, or the products are in a cheaper "
        "format whose errors do not show"
    )

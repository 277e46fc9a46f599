"""Which GPU kernels a call runs, by the driver's own trace: what a baseline is slow by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

LONGEST = 5
"""Kernels that are told; the rest is added up."""
OTHERS = "others"


def kernel_times(run: Callable[[], Any]) -> list[dict[str, Any]]:
    """The GPU kernels of one call, the longest first, as `records.job.KernelTime`s; what a call
    copies or fills is among them. Empty where the trace is not to be had."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as seen:
        run()
        torch.cuda.synchronize()
    times: dict[str, tuple[int, float]] = {}
    for event in seen.events() or []:
        count, ms = times.get(event.name, (0, 0.0))
        if event.device_type.name == "CUDA" and event.device_time:
            times[event.name] = count + 1, ms + event.device_time / 1e3
    return longest(times)


def longest(times: Mapping[str, tuple[int, float]]) -> list[dict[str, Any]]:
    """Of launches and milliseconds by name, those that take most of the time."""
    rows = sorted(times.items(), key=lambda item: -item[1][1])
    told = [{"name": name, "count": count, "ms": ms} for name, (count, ms) in rows[:LONGEST]]
    rest = [row for _, row in rows[LONGEST:]]
    if rest:
        count, ms = sum(count for count, _ in rest), sum(ms for _, ms in rest)
        told.append({"name": OTHERS, "count": count, "ms": ms})
    return told

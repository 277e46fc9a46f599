"""How many of this machine's cores a process may use."""

from __future__ import annotations

import os
from pathlib import Path

QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""A container's limit: microseconds of cores, or `max`, in so many (cgroup v2)."""


def cores() -> int:
    """Those that this process is let run on, as far as its container's limit goes; at least 1."""
    allowed = getattr(os, "sched_getaffinity", None)  # Linux has it
    here = len(allowed(0)) if allowed else os.cpu_count() or 1
    try:
        time, period = QUOTA.read_text().split()
        return max(1, min(here, int(time) // int(period)))
    except (OSError, ValueError):  # there is none
        return here

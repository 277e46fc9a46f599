"""Two kernels' counters side by side, without those that say nothing of either."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kernel_profiling.ncu.metrics import METRICS
from kernel_profiling.profile import Profile

OF_LAUNCH = (
    "registers",
    "spill_bytes",
    "shared_bytes",
    "occupancy",
    "load_bits",
    "store_bits",
    "matrix_instructions",
)
LEAST_SHARE = 1.0
"""Percent; a share below it in both kernels says nothing of either."""


class Row(NamedTuple):
    """A counter: its values in the two kernels, empty where it has none, and their ratio."""

    name: str
    told: str
    """Unit and meaning."""
    before: str
    after: str
    ratio: str


def counters(before: Profile | None, after: Profile | None) -> list[Row]:
    """Those of the two kernels' largest launches; traffic is of the whole call."""
    rows = []
    for level in ("dram", "l2", "l1", "registers"):
        pair = [p.traffic.get(level) if p else None for p in (before, after)]
        rows += _row(f"traffic at {level}", "byte: moved in the whole call", pair)
    largest = [
        max(p.launches, key=lambda launch: launch.share or 0) if p and p.launches else None
        for p in (before, after)
    ]
    for name in OF_LAUNCH:
        pair = [getattr(launch, name) if launch else None for launch in largest]
        rows += _row(name.replace("_", " "), "of the largest launch", pair)
    has_matrix = any(launch and launch.matrix_instructions != 0 for launch in largest)
    for metric in METRICS:
        pair = [launch.metrics.get(metric.name) if launch else None for launch in largest]
        is_small = metric.unit == "%" and all((value or 0) < LEAST_SHARE for value in pair)
        if is_small or (metric.name == "matrix_busy" and not has_matrix):
            continue
        told = f"{metric.unit}: {metric.meaning}"
        rows += _row(metric.name.replace("_", " "), told, pair)
    return rows


def _row(name: str, told: str, pair: Sequence[float | None]) -> list[Row]:
    """Nothing where both are zero or absent."""
    if not any(pair):
        return []
    texts = ["" if value is None else f"{value:.4g}" for value in pair]
    before, after = pair
    ratio = f"{after / before:.3g}" if before and after is not None else ""
    return [Row(name, told, texts[0], texts[1], ratio)]


def below_least(profile: Profile | None, least_bytes: int) -> str:
    """Why less was measured at device memory than must be moved; empty where it was not."""
    moved = profile.traffic.get("dram") if profile and profile.source == "ncu" else None
    if moved is None or moved >= least_bytes:
        return ""
    return (
        f"{moved / 1e9:.3f} GB at device memory are less than the least bytes, "
        f"{least_bytes / 1e9:.3f} GB: what is still in the L2 as the call ends is not counted."
    )

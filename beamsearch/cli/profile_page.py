"""One kernel's profile as text: one screen, and the annotated source below it."""

from __future__ import annotations

import shutil
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from beamsearch.report.numbers import of_products

if TYPE_CHECKING:
    from beamsearch.api.profile import Profiled
    from kernel_profiling.profile import Launch

# What a screen has room for; the JSON has all.
FINDINGS = 6
WITH_ADVICE = 3
RULES = 3
LAUNCHES = 4
WIDTH = 120
"""Columns at most: longer lines are hard to read."""


@dataclass(frozen=True)
class ProfilePage:
    """What the page shows of one kernel."""

    kernel: Path
    taken: Profiled
    with_metrics: bool = False
    """Whether the curated metrics of each launch are shown too."""

    def as_json(self) -> dict[str, Any]:
        """Every number of it."""
        told = self.taken.model_dump(mode="json", exclude={"report"})
        return told | {"kernel": str(self.kernel), "floor_ms": self.taken.floor.time_ms}

    def text(self) -> str:
        """One screen, and the listing below it."""
        launches = sorted(self.taken.profile.launches, key=lambda launch: -(launch.share or 0))
        more = len(launches) - LAUNCHES
        return "\n".join(
            [
                *self.distance(),
                *(wrapped(describe_launch(launch), 2) for launch in launches[:LAUNCHES]),
                *([f"{more} smaller launches"] if more > 0 else []),
                bold("findings, by what fixing each alone could give"),
                *self.described_findings(),
                *self.advice_of_ncu(),
                *(self.metrics() if self.with_metrics else []),
                "",
                self.taken.annotated_source,
            ]
        )

    def distance(self) -> list[str]:
        """Title, distance to the floor, and bytes moved at each level over the least."""
        taken, floor, time = self.taken.profile, self.taken.floor, self.taken.measurement
        source = "Nsight Compute" if taken.source == "ncu" else "the compiler, nothing measured"
        title = f"{self.taken.problem}  {self.kernel.name}  on {taken.gpu}, from {source}"
        lines = [bold(title)]
        if taken.note:
            lines.append(f"note: {taken.note}")
        rate = "measured" if floor.bandwidth_source == "measured" else "datasheet"
        lines.append(
            f"floor  {floor.time_ms:.4g} ms  ({floor.least_bytes / 1e9:.3f} GB at "
            f"{floor.bandwidth_gb_s:.0f} GB/s, {rate}; "
            f"{floor.flops / 1e9:.1f} GFLOP{of_products(floor)})"
        )
        if floor.corrected:
            lines.append(wrapped(floor.corrected, 2))
        if time is not None:
            about = "~" if time.source == "modelled" else ""
            lines.append(f"time   {time}  = {about}{time.time_ms / floor.time_ms:.2f}x the floor")
        lines += self.ledger()
        if floor.gives_away is not None and floor.gives_away.sentence:
            lines.append(wrapped(floor.gives_away.sentence, 2))
        return lines

    def ledger(self) -> list[str]:
        """Bytes moved at each level, over the least; at device memory also over what it can move.

        The two together tell a kernel that moves little slowly from one that moves much fast.
        """
        floor, time, lines = self.taken.floor, self.taken.measurement, []
        for level, moved in self.taken.profile.traffic.items():
            told = f"{level:<9} {moved / 1e9:8.3f} GB"
            if floor.least_bytes:
                told += f"  {moved / floor.least_bytes:6.2f}x the least"
            if level == "dram" and time is not None:
                rate = moved / time.time_ms / 1e6
                share = 100 * rate / floor.bandwidth_gb_s
                told += f"  at {rate:.0f} GB/s, {share:.0f}% of what this GPU can"
            lines.append(told)
        return lines

    def advice_of_ncu(self) -> list[str]:
        """Nsight Compute's own rules with the largest estimated speedups, over all launches."""
        rules = [
            (rule.estimated_speedup_percent * (launch.share or 1.0), launch.name, rule)
            for launch in self.taken.profile.launches
            for rule in launch.rules
            if rule.estimated_speedup_percent
        ]
        lines = [
            wrapped(f"{percent:3.0f}% {name}: {rule.name}: {rule.message}", 5, most=1)
            for percent, name, rule in sorted(rules, key=lambda item: -item[0])[:RULES]
        ]
        return [bold("Nsight Compute's own rules, by its estimates"), *lines] if lines else []

    def metrics(self) -> list[str]:
        """The curated metrics by group, with unit and meaning; what is missing is left out."""
        from kernel_profiling.ncu.metrics import BY_NAME

        lines = []
        for launch in self.taken.profile.launches:
            group = ""
            for name, metric in BY_NAME.items():
                if name not in launch.metrics:
                    continue
                if metric.group != group:
                    group = metric.group
                    lines.append(bold(f"{launch.name}: {group}"))
                value = f"{launch.metrics[name]:.6g}"
                lines.append(f"  {name:<22} {value:>14} {metric.unit:<12} {metric.meaning}")
        return lines or ["no metrics: they come from Nsight Compute alone"]

    def described_findings(self) -> list[str]:
        """Findings in order of worth: the first with evidence and advice, the others in a line."""
        lines = []
        for number, item in enumerate(self.taken.findings[:FINDINGS], 1):
            where = f"  (line {', '.join(map(str, item.lines[:4]))})" if item.lines else ""
            head = f"{number:>2}. up to {item.gain_bound:.2f}x  {item.title}{where}"
            lines += [bold(text) for text in wrapped(head, 6).splitlines()]
            if number <= WITH_ADVICE:
                lines.append(wrapped("; ".join(item.evidence), 6, most=2, first=6))
                lines.append(wrapped(f"-> {item.advice}", 9, most=2, first=6))
        if len(self.taken.findings) > FINDINGS:
            lines.append(f"    {len(self.taken.findings) - FINDINGS} more with --json")
        return lines or ["    none"]


def bold(text: str) -> str:
    """As the terminal shows it, where it can."""
    return typer.style(text, bold=True)


def wrapped(text: str, indent: int, *, most: int | None = None, first: int = 0) -> str:
    """Text wrapped to the terminal; lines after the first are indented. `most`: lines kept."""
    width = min(WIDTH, shutil.get_terminal_size().columns)
    lines = textwrap.wrap(
        text,
        width,
        initial_indent=" " * first,
        subsequent_indent=" " * indent,
        max_lines=most,
        placeholder=" …",
    )
    return "\n".join(lines)


def describe_launch(launch: Launch) -> str:
    """A launch in one line; what is missing is left out."""
    parts = [f"grid {'x'.join(map(str, launch.grid))}", f"{launch.threads} threads"]
    if launch.duration_us is not None:
        parts.append(f"{launch.duration_us:.1f} us")
    if launch.share is not None:
        parts.append(f"{launch.share:.0%} of the call")
    if launch.registers is not None:
        parts.append(f"{launch.registers} registers")
    if launch.spill_bytes:
        parts.append(f"{launch.spill_bytes} B spilled")
    if launch.shared_bytes is not None:
        parts.append(f"{launch.shared_bytes} B shared")
    if launch.occupancy is not None:
        limit = f" by {launch.occupancy_limiter}" if launch.occupancy_limiter else ""
        parts.append(f"occupancy {launch.occupancy:.0%}{limit}")
    widths = {"load": launch.load_bits, "store": launch.store_bits}
    parts += [f"widest {way} {bits} bits" for way, bits in widths.items() if bits is not None]
    if launch.matrix_instructions is not None:
        parts.append(
            "matrix instructions" if launch.matrix_instructions else "no matrix instruction"
        )
    return f"launch {launch.name}: {', '.join(parts)}"

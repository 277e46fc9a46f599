"""One thing wrong with one launch, and the words that all diagnoses share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernel_profiling.findings.budget import Case
from kernel_profiling.profile import FindingKind, LineCounters


@dataclass(frozen=True)
class Diagnosis:
    """A finding about one launch, its bound still that launch's alone."""

    kind: FindingKind
    title: str
    evidence: list[str]
    gain: float
    advice: str
    lines: Sequence[LineCounters] = ()
    near: bool = False
    """Worth saying though its bound is low: the unit concerned is nearly the busiest."""


def counted(case: Case) -> str:
    """What is known of instructions: how often they ran, or that they are there."""
    return "executed" if case.measured else "static"


def access(line: LineCounters) -> str:
    """How a line's lanes touch memory."""
    parts = [f"line {line.line}:"]
    if line.sectors_per_request is not None:
        parts.append(f"{line.sectors_per_request:.1f} sectors a request")
        if line.ideal_sectors_per_request is not None:
            parts.append(f"(least {line.ideal_sectors_per_request:.1f})")
    bits = line.load_bits or line.store_bits
    if bits:
        parts.append(f"{bits} bits a lane")
    return " ".join(parts)


def where(lines: Sequence[LineCounters]) -> str:
    """The first lines by number."""
    numbers = [str(line.line) for line in lines[:4]]
    if not numbers:
        return "no known line"
    return ("line " if len(numbers) == 1 else "lines ") + ", ".join(numbers)

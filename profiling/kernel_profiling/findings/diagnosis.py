"""One thing wrong with a launch or a call, and the words that all diagnoses share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kernel_profiling.findings.budget import Case
from kernel_profiling.profile import LineCounters


@dataclass(frozen=True)
class Diagnosis:
    """A finding to be; about one launch, its bound is still that launch's alone."""

    kind: str
    """A `FindingKind`, or the kind of a `Check` of another package."""
    title: str
    evidence: list[str]
    gain: float
    advice: str
    lines: Sequence[int] = ()
    near: bool = False
    """Worth saying though its bound is low, as where the unit concerned is nearly the busiest."""


def counted(case: Case) -> str:
    """What is known of instructions: how often they ran, or that they are there."""
    return "executed" if case.measured else "static"


def numbers(lines: Iterable[LineCounters]) -> list[int]:
    """The lines by number."""
    return [line.line for line in lines]


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
    named = ", ".join(map(str, numbers(lines[:4])))
    return f"line{'s' if len(lines) > 1 else ''} {named}" if lines else "no known line"

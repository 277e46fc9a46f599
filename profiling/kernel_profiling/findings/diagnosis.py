"""One thing wrong with one launch, and the words and bounds that all diagnoses share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kernel_profiling.findings.budget import UNIT_NAMES, Budget, Case
from kernel_profiling.profile import FindingKind, Launch, LineCounters


@dataclass(frozen=True)
class Diagnosis:
    """A finding about one launch, its bound still that launch's alone."""

    kind: FindingKind
    title: str
    evidence: list[str]
    gain: float
    advice: str
    lines: tuple[int, ...] = ()
    near: bool = False
    """Worth saying though its bound is low: the unit concerned is nearly the busiest."""


def instruction_factors(budget: Budget, share: float, alu: float, fma: float) -> dict[str, float]:
    """What is left for each unit when these shares of its instructions go away."""
    factors = {"issue": 1 - share, "alu": 1 - alu, "fma": 1 - fma, "uniform": 1 - share}
    heavy, both = budget.busy.get("fma_heavy"), budget.busy.get("fma")
    if heavy and both is not None:
        # Floats go to either half of the pipe, so what is left spreads evenly over both.
        factors["fma_heavy"] = min(1.0, (1 - fma) * both / heavy)
    return factors


def without_wait(budget: Budget, launch: Launch, name: str) -> float:
    """Bound where this wait goes away: the time it took, and no more than the busiest allows."""
    wait = launch.metrics.get(name, 0.0)
    limit = 1 / budget.peak if budget.peak else float("inf")
    return max(1.0, min(1 / max(1 - wait, 1e-2), limit))


def occupancy_gain(case: Case, budget: Budget, share: float) -> float:
    """Bound where a share (0..1) of the warps fits and half of them do; see `execution.occupancy`.

    Measured, no more than the busiest unit allows.
    """
    gain = 0.5 / max(share, 1e-2)
    return min(gain, 1 / budget.kept_busy) if case.measured and budget.kept_busy else gain


def spills_matter(launch: Launch) -> bool:
    """Whether more than 1% of the instructions of this launch's lines move spilled values."""
    whole = sum(line.instructions or 0 for line in launch.lines)
    spilled = sum(line.spill_instructions or 0 for line in launch.lines)
    return bool(launch.spill_bytes) and spilled > 0.01 * whole


def traffic_excess(case: Case, level: str) -> float:
    """Bytes moved at a level over the least; 1 where unknown."""
    moved = case.profile.traffic.get(level)
    if moved is None or case.floor is None or not case.floor.least_bytes:
        return 1.0
    return max(1.0, moved / case.floor.least_bytes)


def is_near(budget: Budget, unit: str) -> bool:
    """Whether this unit is the next to be full: at least 0.6 of the busiest."""
    return budget.peak is not None and budget.busy.get(unit, 0.0) >= 0.6 * budget.peak


def busy_unit(budget: Budget, unit: str | None) -> list[str]:
    if unit is None or unit not in budget.busy:
        return []
    return [f"{UNIT_NAMES[unit]} is {100 * budget.busy[unit]:.0f}% busy"]


def next_limit(budget: Budget, factors: Mapping[str, float]) -> list[str]:
    limit = budget.next_limit(factors)
    return [f"what holds it back then: {limit}"] if limit else []


def counted(case: Case) -> str:
    return "executed" if case.measured else "static"


def access(line: LineCounters) -> str:
    parts = [f"line {line.line}:"]
    if line.sectors_per_request is not None:
        parts.append(f"{line.sectors_per_request:.1f} sectors a request")
        if line.ideal_sectors_per_request is not None:
            parts.append(f"(least {line.ideal_sectors_per_request:.1f})")
    bits = line.load_bits or line.store_bits
    if bits:
        parts.append(f"{bits} bits a lane")
    return " ".join(parts)


def numbers(lines: Iterable[LineCounters]) -> tuple[int, ...]:
    return tuple(line.line for line in lines)


def where(lines: Iterable[LineCounters]) -> str:
    numbers = [str(line.line) for line in lines][:4]
    if not numbers:
        return "no known line"
    return ("line " if len(numbers) == 1 else "lines ") + ", ".join(numbers)

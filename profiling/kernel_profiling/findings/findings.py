"""What a profile means: findings ranked by what fixing each could give.

Every bound says how many times faster the call could be if that one thing were perfect and
nothing else changed. A launch's bound comes from its budget (see `budget`), the call's from
Amdahl's law over the launches' shares of the time, and none exceeds the multiple of the floor.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace

from kernel_profiling.extensions import FINDINGS, extensions
from kernel_profiling.findings import execution, memory_use, whole_call
from kernel_profiling.findings.budget import Budget, Case, make_case
from kernel_profiling.findings.diagnosis import Diagnosis
from kernel_profiling.profile import Finding, FindingKind, Floor, Launch, Profile

WORTH = 1.03
"""Bounds below this are left out: a timer's noise is 1%, and a win must stand clear of it."""

_CHECKS: tuple[Callable[[Case, Launch, Budget], Diagnosis | None], ...] = (
    memory_use.uncoalesced,
    memory_use.narrow_access,
    memory_use.masked_lanes,
    memory_use.spills,
    memory_use.bank_conflicts,
    memory_use.atomics,
    execution.integer_overhead,
    execution.instruction_issue,
    execution.latency,
    execution.occupancy,
    execution.synchronisation,
)

_ASSUMES: dict[str, str] = {
    FindingKind.AT_FLOOR: "it takes the least time there is",
    FindingKind.IDLE_MATRIX_UNITS: "products run at the rate of the matrix units",
    FindingKind.SPILLS: "nothing spills, and nothing waits for what was spilled",
    FindingKind.EXCESS_ARITHMETIC: "only the problem's own arithmetic is left",
    FindingKind.DIVERGENCE: "every lane does useful work",
    FindingKind.INTEGER_OVERHEAD: "no instruction computes an index, an address or a mask",
    FindingKind.UNCOALESCED: "no sector is moved in vain",
    FindingKind.EXCESS_TRAFFIC: "bytes beyond the least cost nothing there",
    FindingKind.NARROW_ACCESS: "every access is as wide as can be",
    FindingKind.BANK_CONFLICTS: "no lanes meet in a bank",
    FindingKind.ATOMICS: "atomics cost next to nothing",
    FindingKind.TAIL: "every SM has work to the end",
    FindingKind.SYNCHRONISATION: "no warp waits at a barrier",
    FindingKind.OCCUPANCY: "twice the warps hide twice the wait, up to half of an SM's",
    FindingKind.LAUNCH_BOUND: "the host costs nothing",
    FindingKind.LIBRARY_TIME: "what libraries do costs nothing",
    FindingKind.MANY_LAUNCHES: "only the longest launch is left",
    FindingKind.LATENCY: "the busiest unit never waits",
    FindingKind.ISSUE_BOUND: "only index arithmetic is left",
    FindingKind.LAUNCH_PARAMETERS: "it ends at the floor",
}
"""What a bound takes for granted, beside that nothing else changes. On equal bounds the more
specific cause comes first, in this order, since it says more about what to change."""


@dataclass(frozen=True)
class Check:
    """A finding that another package brings (`extensions.FINDINGS`)."""

    kind: str
    """Its name, in lower case with underscores."""
    look: Callable[[Case, Launch, Budget], Diagnosis | None]
    """Looks at one launch that takes a twentieth of the call's time or more."""
    assumes: str
    """What its bound takes for granted."""


def brought() -> dict[str, Check]:
    """The findings that other packages bring, by kind."""
    return {check.kind: check for check in extensions(FINDINGS).values()}


def kinds() -> list[str]:
    """Every kind of finding that is known here, the more specific causes first."""
    return [*_ASSUMES, *brought()]


def find(profile: Profile, floor: Floor | None, time_ms: float | None) -> list[Finding]:
    """The findings of a profile, the one worth most first.

    `time_ms` is the call's time from the timer; without it the profiler's durations stand in,
    and in a compiler's profile the modelled time. What is missing is never taken for zero: a
    finding whose numbers are absent is absent.
    """
    if not profile.launches and not profile.torch_operations:
        return []
    case = make_case(profile, floor, time_ms)
    call = [
        whole_call.at_floor(case),
        *(whole_call.excess(case, level) for level in ("dram", "l2", "l1")),
        whole_call.idle_matrix_units(case),
        whole_call.excess_arithmetic(case) or whole_call.excess_products(case),
        whole_call.tail(case),
        whole_call.many_launches(case),
        whole_call.time_in_libraries(case),
        whole_call.launch_bound(case, time_ms),
    ]
    diagnoses = [diagnosis for diagnosis in call if diagnosis is not None]
    by_kind: dict[str, list[tuple[int, Diagnosis]]] = defaultdict(list)
    for index, launch in enumerate(profile.launches):
        # Under a twentieth of the time nothing in a launch is worth a rewrite.
        if launch.triton and case.shares[index] >= 0.05:
            for look in (*_CHECKS, *(check.look for check in brought().values())):
                diagnosis = look(case, launch, case.budgets[index])
                if diagnosis is not None:
                    by_kind[diagnosis.kind].append((index, diagnosis))
    for same in by_kind.values():
        _, worst = max(same, key=lambda pair: pair[1].gain * case.shares[pair[0]])
        times = Counter(profile.launches[index].name for index, _ in same)
        names = ", ".join(f"{n} ({k} times)" if k > 1 else n for n, k in times.items())
        launches = [f"launch {names}"] if len(profile.launches) > 1 else []
        diagnoses.append(
            replace(
                worst,
                evidence=[*launches, *worst.evidence],
                gain=case.call_gain({index: one.gain for index, one in same}),
                lines=list(dict.fromkeys(line for _, one in same for line in one.lines)),
            )
        )
    found = [_finding(one) for one in diagnoses if one.gain >= WORTH or one.near]
    if not found and (last := whole_call.launch_parameters(case)) is not None:
        found = [_finding(last)]

    order = kinds()

    def rank(finding: Finding) -> tuple[bool, float, int]:
        # Bounds are known to two digits; what is equal in those is ordered by kind.
        bound = float(f"{finding.gain_bound:.2g}")
        return finding.kind != FindingKind.AT_FLOOR, -bound, order.index(finding.kind)

    return sorted(_said_once(found, case), key=rank)


def _finding(one: Diagnosis) -> Finding:
    known = _ASSUMES | {kind: check.assumes for kind, check in brought().items()}
    return Finding(
        kind=one.kind,
        title=one.title,
        evidence=one.evidence,
        lines=list(one.lines),
        gain_bound=one.gain,
        assumes=known[one.kind],
        advice=one.advice,
    )


def _said_once(found: list[Finding], case: Case) -> list[Finding]:
    """Without what is the same thing seen twice: where cause and remedy are one, the finding that
    says more about what to change takes the other's evidence, and the larger bound."""
    kinds = {finding.kind: finding for finding in found}
    if FindingKind.UNCOALESCED in kinds:
        # Scattered lanes are why the L1 moves more than the least.
        found = [f for f in found if not (f.kind == FindingKind.EXCESS_TRAFFIC and "L1" in f.title)]
    for kind, other, is_one in _SAME:
        kept, taken = (
            next((f for f in found if f.kind == wanted), None) for wanted in (kind, other)
        )
        if kept is None or taken is None or not is_one(case, kept, taken):
            continue
        both = kept.with_values(
            evidence=list(dict.fromkeys([*kept.evidence, taken.title, *taken.evidence])),
            lines=list(dict.fromkeys([*taken.lines, *kept.lines])),
            gain_bound=max(kept.gain_bound, taken.gain_bound),
            seen_as=[*kept.seen_as, other, *taken.seen_as],
        )
        found = [both if f is kept else f for f in found if f is not taken]
    return found


def _always(case: Case, kept: Finding, taken: Finding) -> bool:
    return True


def _between_launches(case: Case, kept: Finding, taken: Finding) -> bool:
    """Whether no launch alone moves more than the least: then one reads what another has read or
    written."""
    launches, floor = case.profile.launches, case.floor
    names = ("dram_read_bytes", "dram_write_bytes")
    if floor is None or any(name not in launch.metrics for launch in launches for name in names):
        return False
    moved = [sum(launch.metrics[name] for name in names) for launch in launches]
    return "evice memory" in taken.title and max(moved) < whole_call.EXCESS * floor.least_bytes


def _one_bound(case: Case, kept: Finding, taken: Finding) -> bool:
    """Whether both could give the same: then what warps wait for is more warps."""
    return f"{kept.gain_bound:.2g}" == f"{taken.gain_bound:.2g}"


_SAME: tuple[tuple[FindingKind, FindingKind, Callable[[Case, Finding, Finding], bool]], ...] = (
    # The terms that are nothing, and the lanes that compute them.
    (FindingKind.EXCESS_ARITHMETIC, FindingKind.DIVERGENCE, _always),
    # What a launch writes for the next to read is the excess.
    (FindingKind.MANY_LAUNCHES, FindingKind.EXCESS_TRAFFIC, _between_launches),
    (FindingKind.MANY_LAUNCHES, FindingKind.LAUNCH_BOUND, _always),
    (FindingKind.OCCUPANCY, FindingKind.LATENCY, _one_bound),
)
"""Kept kind, the kind that goes into it, and whether they are one fault."""

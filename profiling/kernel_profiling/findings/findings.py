"""What a profile means: findings ranked by what fixing each could give.

Every bound says how many times faster the call could be if that one thing were perfect and
nothing else changed. A launch's bound comes from its budget (see `budget`), the call's from
Amdahl's law over the launches' shares of the time, and none exceeds the multiple of the floor.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

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

# On equal bounds the more specific cause comes first, since it says more about what to change.
_ORDER = [
    FindingKind.AT_FLOOR,
    FindingKind.IDLE_MATRIX_UNITS,
    FindingKind.SPILLS,
    FindingKind.EXCESS_ARITHMETIC,
    FindingKind.DIVERGENCE,
    FindingKind.INTEGER_OVERHEAD,
    FindingKind.UNCOALESCED,
    FindingKind.EXCESS_TRAFFIC,
    FindingKind.NARROW_ACCESS,
    FindingKind.BANK_CONFLICTS,
    FindingKind.ATOMICS,
    FindingKind.TAIL,
    FindingKind.SYNCHRONISATION,
    FindingKind.OCCUPANCY,
    FindingKind.LAUNCH_BOUND,
    FindingKind.LIBRARY_TIME,
    FindingKind.MANY_LAUNCHES,
    FindingKind.LATENCY,
    FindingKind.ISSUE_BOUND,
]


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
        whole_call.excess_arithmetic(case),
        whole_call.tail(case),
        whole_call.many_launches(case),
        whole_call.time_in_libraries(case),
        whole_call.launch_bound(case, time_ms),
    ]
    diagnoses = [diagnosis for diagnosis in call if diagnosis is not None]
    by_kind: dict[FindingKind, list[tuple[int, Diagnosis]]] = defaultdict(list)
    for index, launch in enumerate(profile.launches):
        # Under a twentieth of the time nothing in a launch is worth a rewrite.
        if launch.triton and case.shares[index] >= 0.05:
            for check in _CHECKS:
                diagnosis = check(case, launch, case.budgets[index])
                if diagnosis is not None:
                    by_kind[diagnosis.kind].append((index, diagnosis))
    for same in by_kind.values():
        _, worst = max(same, key=lambda pair: pair[1].gain * case.shares[pair[0]])
        names = ", ".join(profile.launches[index].name for index, _ in same)
        launches = [f"launch {names}"] if len(profile.launches) > 1 else []
        diagnoses.append(
            replace(
                worst,
                evidence=[*launches, *worst.evidence],
                gain=case.call_gain({index: one.gain for index, one in same}),
                lines=list(dict.fromkeys(line for _, one in same for line in one.lines)),
            )
        )
    found = [
        Finding(
            kind=one.kind,
            title=one.title,
            evidence=one.evidence,
            lines=list(one.lines),
            gain_bound=one.gain,
            advice=one.advice,
        )
        for one in diagnoses
        if one.gain >= WORTH or one.near
    ]

    def rank(finding: Finding) -> tuple[bool, float, int]:
        # Bounds are known to two digits; what is equal in those is ordered by kind.
        bound = float(f"{finding.gain_bound:.2g}")
        return finding.kind != FindingKind.AT_FLOOR, -bound, _ORDER.index(finding.kind)

    return sorted(_said_once(found), key=rank)


def _said_once(found: list[Finding]) -> list[Finding]:
    """Without what is the same thing seen twice."""
    kinds = {finding.kind: finding for finding in found}
    if FindingKind.UNCOALESCED in kinds:
        # Scattered lanes are why the L1 moves more than the least.
        found = [f for f in found if not (f.kind == FindingKind.EXCESS_TRAFFIC and "L1" in f.title)]
    work, lanes = (
        kinds.get(kind) for kind in (FindingKind.EXCESS_ARITHMETIC, FindingKind.DIVERGENCE)
    )
    if work is None or lanes is None:
        return found
    # The terms that are nothing, and the lanes that compute them.
    both = work.with_values(
        evidence=[*work.evidence, lanes.title],
        lines=list(dict.fromkeys([*lanes.lines, *work.lines])),
        gain_bound=max(work.gain_bound, lanes.gain_bound),
    )
    return [both if f is work else f for f in found if f is not lanes]

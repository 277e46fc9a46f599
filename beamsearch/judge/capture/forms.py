"""What comes of a kernel before any GPU: its plans with their machine code, or why it has none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf

from beamsearch.judge.capture.compiling import Compiled
from beamsearch.judge.rejection import Log, Rejected
from beamsearch.problem.problem import Problem
from beamsearch.records.plan import Plan
from kernel_profiling.profile import Configuration


@dataclass(frozen=True)
class Form:
    """One plan of a kernel with its machine code. An autotuned kernel has one a configuration."""

    plan: Plan
    compiled: Compiled
    pins: Mapping[str, str] = field(default_factory=dict)
    """Function -> the configuration that was chosen for it."""

    @property
    def launched(self) -> list[str]:
        """Names of the functions that it launches."""
        return sorted({self.plan.kernels[step.kernel].name for step in self.plan.launches})


def configurations(
    forms: Sequence[Form], times_ms: Mapping[int, float] | None = None
) -> list[Configuration]:
    """What an autotuned kernel chose from, the fastest first; `times_ms` by the form's number."""
    times_ms = times_ms or {}
    found = []
    for number in sorted(range(len(forms)), key=lambda n: times_ms.get(n, inf)):
        launches = forms[number].compiled.profile.launches
        found.append(
            Configuration(
                config="; ".join(forms[number].pins.values()),
                registers=max((one.registers or 0 for one in launches), default=None),
                spill_bytes=max((one.spill_bytes or 0 for one in launches), default=None),
                shared_bytes=max((one.shared_bytes or 0 for one in launches), default=None),
                time_ms=times_ms.get(number),
            )
        )
    return found if len(found) > 1 else []


def none_of(forms: Sequence[Form], first: Rejected) -> Rejected:
    """Why an autotuned kernel fails in every configuration: as the first does, which is named."""
    config = "; ".join(forms[0].pins.values())
    reason = f"each of its {len(forms)} configurations fails, the first ({config}) so: "
    return Rejected(
        first.outcome,
        first.stage,
        reason + first.reason,
        raised=first.raised,
        short_of_memory=first.short_of_memory,
    )


@dataclass(frozen=True)
class AtShape:
    """A kernel at a shape other than its own."""

    label: str
    problem: Problem
    form: Form | Rejected
    """The rejection says why there is none."""


@dataclass(frozen=True)
class Captured:
    """What came of one kernel, before any GPU."""

    log: Log
    forms: tuple[Form, ...] = ()
    """At the true shapes, one of which is to be chosen by time."""
    elsewhere: tuple[AtShape, ...] = ()
    """At the shapes that decide."""
    rejection: Rejected | None = None


def moved(captured: Captured, before: str, now: str) -> Captured:
    """What was captured from one file as if it were another, with the same source: its machine
    code alone still names the first."""
    if before == now:
        return captured

    def form_moved(form: Form) -> Form:
        kernels = [
            kernel.with_values(
                ttir=kernel.ttir.replace(before, now),
                source_file=now if kernel.source_file == before else kernel.source_file,
            )
            for kernel in form.plan.kernels
        ]
        return replace(form, plan=form.plan.with_values(kernels=kernels))

    elsewhere = [
        replace(at, form=form_moved(at.form)) if isinstance(at.form, Form) else at
        for at in captured.elsewhere
    ]
    return replace(
        captured, forms=tuple(map(form_moved, captured.forms)), elsewhere=tuple(elsewhere)
    )

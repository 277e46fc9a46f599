"""`verify`: is this kernel correct?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from beamsearch.api.kernel import Kernel, subject_of
from beamsearch.api.page import html
from beamsearch.api.problem import GivenProblem, as_problem
from beamsearch.errors import KernelError
from beamsearch.records.job import JudgeJob, Judgement
from beamsearch.records.verdict import Check, Reach, Stage, error_in_words
from beamsearch.settings import Precision

if TYPE_CHECKING:
    from beamsearch.executor.executor import Executor
    from beamsearch.problem.problem import Problem
    from beamsearch.records.job import Subject

HTML = """
<p><b>{{ answer.kernel }}</b> on {{ answer.problem }} ({{ answer.gpu }}):
<b>{{ summary }}</b>{% if answer.measurement %}, {{ answer.measurement }}{% endif %}</p>
<table><tr><th></th><th>stage</th><th>check</th><th></th></tr>
{% for mark, check in checks %}
<tr><td>{{ mark }}</td><td>{{ check.stage }}</td><td>{{ check.name }}</td>
<td style="text-align: left">{{ check.message }}</td></tr>
{% endfor %}
</table>
{% for text in answer.verdict.not_checked %}
<p>not checked: {{ text }}</p>
{% endfor %}
{% if answer.verdict.output and not answer.correct %}
<pre>{{ answer.verdict.output }}</pre>
{% endif %}
"""


class Verification(Judgement):
    """A verdict, the kernel's time where it is correct, and what both are of. `print` shows every
    check."""

    problem: str
    kernel: str
    """The kernel's name."""
    gpu: str
    """The GPU, or the target that times are modelled for."""
    isolation: str
    """What of the isolation of candidates this machine refuses, in a sentence."""
    precision: Precision
    backward: bool
    scaled: str

    @property
    def correct(self) -> bool:
        """Whether the kernel computes the problem, as far as could be checked here."""
        return self.verdict.correct

    def __str__(self) -> str:
        return told(self)

    def _repr_html_(self) -> str:
        checks = [(mark(check), check) for check in self.verdict.checks]
        return html(HTML, answer=self, summary=summary(self), checks=checks)


class IncorrectKernel(KernelError):
    """A kernel that has to be correct for what was asked, and is not."""

    exit_code = 1

    def __init__(self, verification: Verification) -> None:
        self.verification = verification
        super().__init__(
            f"{verification.kernel} is {summary(verification)}; "
            "`verify` shows every check that it met"
        )


def verify(
    problem: GivenProblem,
    kernel: Kernel,
    *,
    sanitize: bool = False,
    dtype: str | None = None,
    precision: Precision | None = None,
    backward: bool | None = None,
    target: str | None = None,
    device: int | None = None,
    seed: int | None = None,
    strict_nan: bool = False,
) -> Verification:
    """Judge a kernel: every stage and check.

    `kernel`: a file or its source. `sanitize`: also under compute-sanitizer, on a GPU. The other
    settings are those of `beamsearch.settings`. A kernel that is wrong has a verdict that says so;
    raises ProblemError or KernelError where there is nothing to judge.
    """
    from beamsearch.executor.opened import lane
    from beamsearch.gpu.environment import check_platform
    from beamsearch.gpu.machine import find_machine

    check_platform()
    machine = find_machine(device, target)
    found = as_problem(problem, dtype=dtype, precision=precision, backward=backward)
    subject = subject_of(kernel)
    with lane(found, machine, seed, strict_nan=strict_nan) as (executor, _):
        return judged(found, subject, executor, thorough=True, sanitize=sanitize)


def judged(problem: Problem, subject: Subject, executor: Executor, **how: Any) -> Verification:
    """What an executor says of a kernel; `how` are fields of the job."""
    from beamsearch.judge.sandbox.isolation import missing_in_words

    judgement = executor.run(JudgeJob(subject=subject, **how))
    return Verification(
        **dict(judgement),
        problem=problem.name,
        kernel=subject.name,
        gpu=executor.gpu,
        isolation=missing_in_words(executor.missing_isolation()),
        precision=problem.precision,
        backward=problem.backward,
        scaled=problem.scaled,
    )


AT_SHAPES = {
    Reach.GENERAL: ", also at other shapes",
    Reach.SPECIALISED: ", for the problem's own shapes alone",
    None: "",
}
"""What a verdict says of shapes."""


def mark(check: Check) -> str:
    """How a check went, in four letters; `note` for what decides nothing."""
    if check.passed:
        return "ok  "
    return "note" if check.reported else "FAIL"


def summary(judgement: Judgement) -> str:
    """`correct, also at other shapes`, or what failed, where and why."""
    verdict = judgement.verdict
    at = f" at {verdict.stage}: {verdict.reason}" if verdict.stage else ""
    if not at and verdict.reason:
        at = f": {verdict.reason}"
    return f"{verdict.outcome}{AT_SHAPES[verdict.reach]}{at}"


def merged(checks: Sequence[Check]) -> list[tuple[str, str]]:
    """Mark and text of each; those that passed with the same message are one line, and what their
    names have in common stands there once."""
    named: dict[tuple[str, str, str, str], list[str]] = {}
    for place, check in enumerate(checks):
        head, _, tail = check.name.rpartition(", ")
        alone = "" if check.passed else str(place)
        key = mark(check), f"{head}: " if head else "", check.message, alone
        named.setdefault(key, []).append(tail)
    return [
        (sign, f"{head}{', '.join(dict.fromkeys(tails))}{message and f': {message}'}")
        for (sign, head, message, _), tails in named.items()
    ]


def told(judgement: Judgement) -> str:
    """Every check, what was not checked, and the verdict last."""
    verdict, lines = judgement.verdict, []
    for stage in Stage:
        checks = [check for check in verdict.checks if check.stage is stage]
        lines += [f"{sign} {stage:<12} {text}" for sign, text in merged(checks)]
    reached = {check.stage for check in verdict.checks}
    left_out = ", ".join(stage for stage in Stage if stage not in reached)
    for text in ([left_out] if left_out else []) + verdict.not_checked:
        lines.append(f"  -  not checked: {text}")
    if verdict.rms_error is not None:
        time = judgement.measurement
        error = error_in_words(
            verdict.rms_error, measured=time is not None and time.source == "measured"
        )
        lines.append(f"error on the problem's own inputs: {error}")
    if verdict.output and not verdict.correct:
        lines.append("the end of what its processes printed:")
        lines += [f"    {line}" for line in verdict.output.rstrip().splitlines()]
    if judgement.measurement is not None:
        lines.append(f"time: {judgement.measurement} ({judgement.measurement.gpu})")
    return "\n".join([*lines, f"verdict: {summary(judgement)}"])

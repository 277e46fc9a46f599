"""`profile`: what holds a kernel back, and where."""

from __future__ import annotations

import shutil
from pathlib import Path

from beamsearch.api.kernel import Kernel, own_kernel, subject_of
from beamsearch.api.page import html
from beamsearch.api.problem import GivenProblem, as_problem
from beamsearch.api.verify import IncorrectKernel, judged
from beamsearch.errors import UsageError
from beamsearch.records.measurement import Measurement
from beamsearch.records.record import Record
from beamsearch.records.verdict import Outcome
from beamsearch.settings import Precision
from kernel_profiling.profile import Finding, Floor, Profile

HTML = """
<p>{% for line in distance %}{{ line }}<br>{% endfor %}</p>
<table><tr><th>up to</th><th>finding</th><th>lines</th><th>evidence</th><th>advice</th></tr>
{% for item in answer.findings %}
<tr><td>{{ "%.2f"|format(item.gain_bound) }}x</td><td style="text-align: left">{{ item.title }}</td>
<td>{{ item.lines|join(", ") }}</td>
<td style="text-align: left">{{ item.evidence|join("; ") }}</td>
<td style="text-align: left">{{ item.advice }}</td></tr>
{% endfor %}
</table>
<details><summary>source with its counters</summary>
<pre>{{ answer.annotated_source }}</pre></details>
"""


class Profiled(Record):
    """A kernel's profile and what it means. `print` shows the findings."""

    problem: str
    kernel: str
    """The kernel's name."""
    floor: Floor
    measurement: Measurement | None
    profile: Profile
    """Every launch with its counters, and every source line with its own."""
    findings: list[Finding]
    """What it means, the one worth most first."""
    annotated_source: str
    """The source, each line with its counters."""
    report: Path | None = None
    """Where Nsight Compute's own report was kept; none where there is none."""
    scaled: str

    def distance(self) -> list[str]:
        """What was profiled where, and how far it is from the floor."""
        source = "Nsight Compute" if self.profile.source == "ncu" else "the compiler"
        lines = [f"{self.problem}  {self.kernel}  on {self.profile.gpu}, from {source}"]
        lines.append(f"floor  {self.floor.time_ms:.4g} ms")
        if (time := self.measurement) is not None:
            about = "~" if time.source == "modelled" else ""
            ratio = time.time_ms / self.floor.time_ms
            lines.append(f"time   {time}  = {about}{ratio:.2f}x the floor")
        return lines

    def __str__(self) -> str:
        found = [
            f"up to {item.gain_bound:.2f}x  {item.title}\n    -> {item.advice}"
            for item in self.findings
        ]
        return "\n".join([*self.distance(), *(found or ["no findings"])])

    def _repr_html_(self) -> str:
        return html(HTML, answer=self, distance=self.distance())


def profile(
    problem: GivenProblem,
    kernel: Kernel | None = None,
    *,
    dtype: str | None = None,
    precision: Precision | None = None,
    backward: bool | None = None,
    target: str | None = None,
    device: int | None = None,
    seed: int | None = None,
    keep_report: Path | None = None,
) -> Profiled:
    """Tell what holds a kernel back: from Nsight Compute where there is a GPU, from the compiler
    alone where there is none. The kernel is verified first; one that nothing can show to be right
    without a GPU is profiled all the same, and the profile's note says so.

    `kernel`: a file or its source; the problem's own where there is none. `keep_report`: a file for
    Nsight Compute's own report. Raises IncorrectKernel, and what `verify` raises.
    """
    from beamsearch.gpu.environment import check_platform
    from beamsearch.gpu.machine import find_machine

    check_platform()
    machine = find_machine(device, target)

    from beamsearch.baselines.floor import beaten_floor, measure_floor
    from beamsearch.executor.opened import lane
    from beamsearch.records.job import ProfileJob
    from kernel_profiling.findings.findings import find
    from kernel_profiling.ncu.line_counters import annotate

    found = as_problem(problem, dtype=dtype, precision=precision, backward=backward)
    subject = subject_of(own_kernel(found) if kernel is None else kernel)
    with lane(found, machine, seed) as (executor, scratch):
        verification = judged(found, subject, executor)
        is_unproven = verification.verdict.outcome is Outcome.UNPROVEN
        if not (verification.correct or is_unproven):
            raise IncorrectKernel(verification)
        taken = executor.run(ProfileJob(subject=subject, full=True))
        if is_unproven:
            notes = [taken.note, f"It was not shown to be right: {verification.verdict.reason}"]
            taken = taken.with_values(note="; ".join(filter(None, notes)))
        time = verification.measurement
        floor = measure_floor(found, machine)
        if time is not None:
            floor = beaten_floor(found, floor, time, machine)
        return Profiled(
            problem=found.name,
            kernel=subject.name,
            floor=floor,
            measurement=time,
            profile=taken,
            findings=find(taken, floor, time.time_ms if time else None),
            annotated_source=annotate(taken, subject.source or ""),
            report=_kept(scratch, keep_report) if keep_report else None,
            scaled=found.scaled,
        )


def _kept(scratch: Path, wanted: Path) -> Path | None:
    """Copy the report that profiling left, and where to; none where there is none. Raises
    UsageError where it cannot be written."""
    reports = sorted(scratch.rglob("*.ncu-rep"), key=lambda path: path.stat().st_mtime)
    if not reports:
        return None
    try:
        shutil.copyfile(reports[-1], wanted)
    except OSError as error:
        raise UsageError(f"cannot write {wanted.resolve()}: {error.strerror}") from error
    return wanted.resolve()

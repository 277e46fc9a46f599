"""`profile PROBLEM [KERNEL]`: what holds a kernel back, and where."""

from __future__ import annotations

import json as json_module
import shutil
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from beamsearch.commands.options import (
    DeviceOption,
    DtypeOption,
    JsonOption,
    ProblemArgument,
    SeedOption,
    TargetOption,
)

if TYPE_CHECKING:
    from beamsearch.records.measurement import Measurement
    from profiling.profile import Finding, Floor, Launch, Profile


def profile(
    problem: ProblemArgument,
    kernel: Annotated[
        Path | None,
        typer.Argument(metavar="KERNEL", help="Default: input_kernel.py of the problem."),
    ] = None,
    json: JsonOption = False,
    keep_report: Annotated[
        Path | None,
        typer.Option(metavar="PATH", help="Keep Nsight Compute's report (.ncu-rep) there."),
    ] = None,
    dtype: DtypeOption = None,
    target: TargetOption = None,
    device: DeviceOption = None,
    seed: SeedOption = None,
) -> None:
    """Tell what holds a kernel back.

    The floor, the traffic, findings, and the source with its counters: from Nsight Compute where
    there is a GPU, from the compiler alone where there is none. The kernel is verified first.
    """
    from beamsearch.environment import check_platform, pick_device

    check_platform()
    picked = pick_device(device)

    from beamsearch.baseline import measure_floor
    from beamsearch.commands.lane import lane
    from beamsearch.commands.verify import as_json, read_source, told
    from beamsearch.errors import UsageError
    from beamsearch.executor.jobs import JudgeJob, ProfileJob, Subject
    from beamsearch.problem import find_problem
    from profiling.findings import find
    from profiling.hotspots import annotate

    found = find_problem(problem).with_dtype(dtype)
    path = kernel or found.input_kernel
    if path is None:
        raise UsageError(f"{found.name} has no input_kernel.py; name a kernel file")
    source = read_source(path)
    subject = Subject(name=path.stem, source=source)
    with lane(found, picked, target or "h200", seed) as (executor, scratch):
        judgement = executor.run(JudgeJob(subject=subject))
        if not judgement.verdict.correct:
            typer.echo(json_module.dumps(as_json(judgement)) if json else told(judgement))
            raise typer.Exit(1)
        taken = executor.run(ProfileJob(subject=subject))
        floor = measure_floor(found, executor.gpu, picked)
        time = judgement.measurement
        findings = find(taken, floor, time.time_ms if time else None)
        page = Page(found.name, path, floor, time, taken, findings, annotate(taken, source))
        typer.echo(json_module.dumps(page.as_json()) if json else page.text())
        if keep_report is not None:
            keep(scratch, keep_report, taken.source)


@dataclass(frozen=True)
class Page:
    """What is told of one kernel."""

    problem: str
    kernel: Path
    floor: Floor
    time: Measurement | None
    profile: Profile
    findings: list[Finding]
    annotated_source: str

    def as_json(self) -> dict[str, Any]:
        """Every number of it."""
        return {
            "problem": self.problem,
            "kernel": str(self.kernel),
            "floor": self.floor.model_dump(mode="json"),
            "floor_ms": self.floor.time_ms,
            "measurement": self.time.model_dump(mode="json") if self.time else None,
            "profile": self.profile.model_dump(mode="json"),
            "findings": [item.model_dump(mode="json") for item in self.findings],
            "annotated_source": self.annotated_source,
        }

    def text(self) -> str:
        """One screen, and the listing below it."""
        head = typer.style("findings, by what fixing them alone could give", bold=True)
        return "\n".join(
            [
                *self.distance(),
                *map(describe_launch, self.profile.launches),
                head,
                *self.described_findings(),
                "",
                self.annotated_source,
            ]
        )

    def distance(self) -> list[str]:
        """Title, distance to the floor, and bytes moved at each level over the least."""
        taken, floor, time = self.profile, self.floor, self.time
        source = "Nsight Compute" if taken.source == "ncu" else "the compiler, nothing measured"
        title = f"{self.problem}  {self.kernel.name}  on {taken.gpu}, from {source}"
        lines = [typer.style(title, bold=True)]
        if taken.note:
            lines.append(f"note: {taken.note}")
        rate = "measured" if floor.bandwidth_source == "measured" else "datasheet"
        lines.append(
            f"floor  {floor.time_ms:.4g} ms  ({floor.least_bytes / 1e9:.3f} GB at "
            f"{floor.bandwidth_gb_s:.0f} GB/s, {rate}; {floor.flops / 1e9:.1f} GFLOP)"
        )
        if time is not None:
            about = "~" if time.source == "modelled" else ""
            lines.append(f"time   {time}  = {about}{time.time_ms / floor.time_ms:.2f}x the floor")
        for level, moved in taken.traffic.items():
            least = f"  {moved / floor.least_bytes:.2f}x the least" if floor.least_bytes else ""
            lines.append(f"{level:<6} {moved / 1e9:.3f} GB{least}")
        return lines

    def described_findings(self) -> list[str]:
        """Findings in order of worth."""
        lines = []
        for number, item in enumerate(self.findings, 1):
            where = f"  (line {', '.join(map(str, item.lines[:6]))})" if item.lines else ""
            head = f"{number:>2}. up to {item.gain_bound:.2f}x  {item.title}{where}"
            lines += [typer.style(head, bold=True), indented("; ".join(item.evidence))]
            lines.append(indented(item.advice))
        return lines or ["    none"]


def keep(scratch: Path, wanted: Path, source: str) -> None:
    """Copy the report that profiling left. Raises UsageError where there is none."""
    from beamsearch.errors import UsageError

    reports = sorted(scratch.rglob("*.ncu-rep"), key=lambda path: path.stat().st_mtime)
    if not reports:
        why = "this profile is the compiler's" if source == "compiler" else "none was left"
        raise UsageError(
            f"--keep-report: there is no Nsight Compute report, {why} "
            "(`python -m beamsearch doctor` tells of ncu and its permission)"
        )
    shutil.copyfile(reports[-1], wanted)


def indented(text: str) -> str:
    """Text wrapped to the terminal, under a finding."""
    width = min(120, shutil.get_terminal_size().columns)
    return textwrap.fill(text, width, initial_indent=" " * 6, subsequent_indent=" " * 6)


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
    if launch.load_bits is not None:
        parts.append(f"widest load {launch.load_bits} bits")
    return f"launch {launch.name}: {', '.join(parts)}"

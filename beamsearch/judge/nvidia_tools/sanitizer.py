"""Every access of a kernel inside its tensors: one bound call under NVIDIA's compute-sanitizer."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from beamsearch.judge.capture.ahead import Form
from beamsearch.judge.nvidia_tools.profiling_run import write_call
from beamsearch.judge.rejection import Log, Rejected
from beamsearch.judge.sandbox.clean_environment import scrubbed_environment
from beamsearch.problem.problem import Problem
from beamsearch.records.verdict import Outcome, Stage
from kernel_profiling.ncu.run import find_program

SANITIZE_S = 180.0
"""Seconds for one call and its compilation, which take ten where nothing is large."""
SHOWN = 20
"""Errors written down; one is told."""

_ERROR = re.compile(r"=+ (Invalid \S+ \w+ of size .*|Misaligned .*|.*(?:out of bounds|overflow).*)")
_PLACE = re.compile(r"=+ {2,}at (.*)")
_SUMMARY = re.compile(r"ERROR SUMMARY: (\d+) error")


def find_sanitizer() -> Path | None:
    """The `compute-sanitizer` on PATH, else one in a CUDA toolkit; None without."""
    folders = ("usr/local/cuda*/bin", "opt/cuda*/bin")
    return find_program("compute-sanitizer", folders)


def check_memory(
    calls: list[tuple[str, Problem, Form]], device: int, scratch: Path, log: Log
) -> None:
    """Run a plan at each problem's shapes under the sanitizer. Needs the lane.

    Raises Rejected where it accesses memory outside its tensors. What keeps the sanitizer from
    telling is noted as not checked: it may be no fault of the kernel.
    """
    program = find_sanitizer()
    if program is None:
        log.not_checked.append(
            "memory safety: compute-sanitizer is not installed (it comes with the CUDA toolkit)"
        )
        return
    for label, problem, form in calls:
        report = run_sanitizer(program, problem, form, device, scratch)
        error = first_error(report)
        if error:
            reason = f"at {label} the kernel leaves its tensors: {error}"
            raise Rejected(Outcome.WRONG, Stage.MEMORY, reason)
        if _SUMMARY.search(report):
            log.passed(Stage.MEMORY, label, "no access outside its tensors")
        else:
            last = report.strip().splitlines()[-1:] or ["no report"]
            log.not_checked.append(f"memory safety at {label}: compute-sanitizer says: {last[0]}")


def run_sanitizer(program: Path, problem: Problem, form: Form, device: int, scratch: Path) -> str:
    """The sanitizer's report of one bound call on public inputs."""
    folder = scratch / "sanitizer"
    folder.mkdir(parents=True, exist_ok=True)
    spec, report = folder / "call.json", folder / "report.txt"
    report.unlink(missing_ok=True)
    write_call(spec, problem, form, device, "sanitizer")
    command = [
        *(str(program), "--tool", "memcheck", "--report-api-errors", "no"),
        *("--print-limit", str(SHOWN), "--log-file", str(report)),
        *(sys.executable, "-m", "beamsearch.judge.nvidia_tools.call", str(spec)),
    ]
    # Every tensor an allocation of its own, with nothing readable around it.
    env = scrubbed_environment() | {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    with (folder / "output.txt").open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            process.wait(SANITIZE_S)
        except subprocess.TimeoutExpired:
            return f"no end within {SANITIZE_S:g} s"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return report.read_text(errors="replace") if report.is_file() else ""


def first_error(report: str) -> str | None:
    """The first access error of a report, with its place in the source; none where there is none.

    Such as `Invalid __global__ read of size 2 bytes at scale_kernel+0x1a0 in kernel.py:12`.
    """
    lines = report.splitlines()
    for number, line in enumerate(lines):
        error = _ERROR.match(line)
        if error is None:
            continue
        for below in lines[number + 1 : number + 3]:
            place = _PLACE.match(below)
            if place:
                where = re.sub(r"/\S*/", "", place[1].strip())  # the file without its folder
                return f"{error[1].strip()} at {where}"
        return error[1].strip()
    return None

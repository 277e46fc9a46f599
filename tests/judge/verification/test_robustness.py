"""What is told of a kernel beyond one right call: other shapes, other layouts, secret seeds."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from beamsearch.executor.local import LocalExecutor
from beamsearch.gpu.machine import modelled
from beamsearch.judge.nvidia_tools.sanitizer import first_error
from beamsearch.judge.rejection import Log
from beamsearch.judge.sandbox.memory import SharedMemory
from beamsearch.judge.verification.inputs import InputSets
from beamsearch.judge.verification.robustness import tell_layouts
from beamsearch.problem.problem import Problem
from beamsearch.problem.shrink import shrink
from beamsearch.records.job import JudgeJob, Judgement, Subject
from beamsearch.records.trace import kept_secret
from beamsearch.records.verdict import Check, Outcome, Reach, Stage
from beamsearch.settings import Settings
from tests.judge.conftest import SCALE_KERNEL, SCALE_PROBLEM, write_problem
from tests.judge.test_verdicts import HOST, variant


def examine(executor: LocalExecutor, source: str) -> Judgement:
    return executor.run(
        JudgeJob(subject=Subject(name="candidate", source=source), thorough=True, sanitize=True)
    )


def of_stage(judgement: Judgement, stage: Stage) -> list[Check]:
    return [check for check in judgement.verdict.checks if check.stage is stage]


def test_general_kernel_is_told_to_be(executor: LocalExecutor) -> None:
    judgement = examine(executor, SCALE_KERNEL.replace("def kernel_function(x, bias):\n", (
        "def kernel_function(x, bias):\n    x = x.contiguous()\n")))  # fmt: skip
    assert judgement.verdict.correct, judgement.verdict.reason
    assert judgement.verdict.reach is Reach.GENERAL
    assert len(of_stage(judgement, Stage.OTHER_SHAPES)) >= 3
    assert all(check.passed for check in judgement.verdict.checks)
    assert any("memory safety" in text for text in judgement.verdict.not_checked)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            "    if x.shape[1] % 2 == 0:\n        raise ValueError('made for odd rows')\n",
            "made for",
        ),
        ("    if x.shape[1] % 2 == 0:\n        return torch.zeros_like(x)\n", "elements wrong"),
    ],
    ids=["raises", "is wrong"],
)
def test_kernel_for_some_shapes_alone_is_specialised_and_correct(
    executor: LocalExecutor, change: str, why: str
) -> None:
    """Odd rows are those of the smoke shapes; even ones are among the others."""
    source = variant(HOST, change + HOST).replace(
        "x.shape[1] % 2", "x.shape[1] < 4096 and x.shape[1] % 2"
    )
    judgement = examine(executor, source)
    assert judgement.verdict.correct, judgement.verdict.reason
    assert judgement.verdict.reach is Reach.SPECIALISED
    notes = [c for c in of_stage(judgement, Stage.OTHER_SHAPES) if not c.passed]
    assert "aligned sizes" in [note.name for note in notes]
    assert all(note.reported for note in notes)
    assert all("specialised" in note.message and why in note.message for note in notes)


def test_inputs_that_are_not_contiguous_are_told_of_and_not_failed(
    executor: LocalExecutor,
) -> None:
    judgement = examine(executor, SCALE_KERNEL)  # it takes x to be contiguous
    assert judgement.verdict.correct
    strided, misaligned = of_stage(judgement, Stage.LAYOUT)
    assert strided.reported and not strided.passed
    assert "elements wrong" in strided.message
    assert misaligned.passed


def test_layouts_of_a_problem_that_tells_nothing_when_small_are_not_checked(
    executor: LocalExecutor, tmp_path: Path
) -> None:
    problem = write_problem(
        tmp_path, SCALE_PROBLEM.replace("2 * x + self.bias", "2 * x + self.bias + 1e12"), "hidden"
    )
    log, sets = Log(), InputSets(shrink(problem), SharedMemory("cpu"), 0)
    tell_layouts(lambda layout: executor._servers.fork("interpreting"), sets, log, 5.0)
    assert not log.checks
    (told,) = log.not_checked
    assert "layouts" in told and "cannot tell right from wrong" in told


BEYOND = {
    "reads past the end": (
        variant("x_ptr + index, mask=mask)", "x_ptr + index + index // (total - 1), mask=mask)"),
        "never written",
    ),
    "writes past the end": (
        variant(
            "    tl.store(y_ptr",
            "    tl.store(x_ptr + total + index, 0.0, mask=index < 8)\n    tl.store(y_ptr",
        ),
        "changed its inputs",
    ),
}


@pytest.mark.parametrize("name", BEYOND)
def test_what_leaves_its_inputs_shows(executor: LocalExecutor, name: str) -> None:
    source, reason = BEYOND[name]
    verdict = executor.run(JudgeJob(subject=Subject(name="candidate", source=source))).verdict
    assert verdict.outcome is Outcome.WRONG
    assert reason in verdict.reason


def test_right_for_the_problems_own_values_alone_is_wrong(executor: LocalExecutor) -> None:
    """No negative number, no infinity and no number above one is among them."""
    for wrong in ("tl.abs(x)", "tl.minimum(x, 8.0)"):
        source = variant("2 * x + bias", f"2 * {wrong} + bias")
        verdict = executor.run(JudgeJob(subject=Subject(name="a", source=source))).verdict
        assert (verdict.outcome, verdict.stage) == (Outcome.WRONG, Stage.SMOKE)
        assert any(check.name == "own #1" and check.passed for check in verdict.checks)


def test_secret_is_drawn_once_and_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / ".secret_seed"
    secret = kept_secret(path)
    assert kept_secret(path) == secret
    assert kept_secret(tmp_path / "another") != secret
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert Settings().seed is None


REPORT = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 2 bytes
=========     at scale_kernel+0x1a0 in /tmp/run/sources/0123456789abcdef/kernel.py:12
=========     by thread (96,0,0) in block (4095,0,0)
=========     Address 0x7f30d4800000 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f30d4000000 of size 8388608 bytes
=========     Host Frame: cuLaunchKernelEx [0x2f0d3c] in libcuda.so.1
=========
========= ERROR SUMMARY: 1 error
"""


def test_report_of_the_sanitizer_is_told_in_a_line() -> None:
    told = "Invalid __global__ read of size 2 bytes at scale_kernel+0x1a0 in kernel.py:12"
    assert first_error(REPORT) == told
    assert first_error("========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n") is None


OVERWRITTEN = {
    "at any shape": (
        "KEPT.setdefault(x.shape, torch.empty_like(x))",
        (Outcome.DISALLOWED, Stage.COMPILE),
        "returns memory that it keeps between calls",
    ),
    "at shrunk shapes": (
        "torch.empty_like(x) if len(x) > 999 else KEPT.setdefault(x.shape, torch.empty_like(x))",
        (Outcome.WRONG, Stage.SMOKE),
        "changed by the next call",
    ),
}


@pytest.mark.parametrize("name", OVERWRITTEN)
def test_result_that_the_next_call_overwrites_is_refused(
    executor: LocalExecutor, name: str
) -> None:
    result, outcome, reason = OVERWRITTEN[name]
    source = variant(HOST, f"    y = {result}\n").replace(
        "@triton.jit", "KEPT = {}\n\n@triton.jit", 1
    )
    verdict = executor.run(JudgeJob(subject=Subject(name="kept", source=source))).verdict
    assert (verdict.outcome, verdict.stage) == outcome, verdict.reason
    assert reason in verdict.reason


def test_other_strides_are_told(executor: LocalExecutor) -> None:
    source = variant("    return y\n", "    return y.t().contiguous().t()\n")
    verdict = executor.run(JudgeJob(subject=Subject(name="strides", source=source))).verdict
    assert verdict.correct, verdict.reason
    (check,) = [check for check in verdict.checks if check.name == "strides"]
    assert check.reported
    assert not check.passed
    assert "the reference's has" in check.message


def test_lost_nan_is_told_and_refused_where_that_is_asked(
    executor: LocalExecutor, scale_problem: Problem, tmp_path: Path
) -> None:
    lost = variant("(2 * x + bias)", "tl.where(x == x, 2 * x + bias, 0.0)")
    for source, passed in ((SCALE_KERNEL, True), (lost, False)):
        judgement = examine(executor, source)
        assert judgement.verdict.correct, judgement.verdict.reason
        (check,) = [c for c in judgement.verdict.checks if c.name == "not-a-number"]
        assert (check.reported, check.passed) == (True, passed)
    strict = LocalExecutor(
        scale_problem,
        machine=modelled(),
        scratch=tmp_path,
        seed=7,
        strict_nan=True,
    )
    try:
        job = JudgeJob(subject=Subject(name="lost", source=lost))
        verdict = strict.run(job).verdict
    finally:
        strict.close()
    assert (verdict.outcome, verdict.stage) == (Outcome.WRONG, Stage.SMOKE)
    assert "not_a_number" in verdict.reason

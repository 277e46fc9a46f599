"""Kernels that are right where shapes are small, and wrong at their own: none of them wins."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from beamsearch.executor.local import LocalExecutor
from beamsearch.gpu.machine import modelled
from beamsearch.judge.sandbox.processes import ForkServers
from beamsearch.judge.verification.deciding_shapes import deciding, long_shapes
from beamsearch.judge.verification.oracle import run_oracle
from beamsearch.judge.without_gpu import ModellingJudge
from beamsearch.problem.input_values import DISTRIBUTIONS
from beamsearch.problem.instance import instantiate
from beamsearch.problem.problem import Problem, find_problem, read_problem
from beamsearch.problem.shrink import shrink
from beamsearch.records.job import JudgeJob, Subject
from beamsearch.records.verdict import Outcome, Reach, Stage, Verdict
from tests.judge.conftest import SCALE_KERNEL, SCALE_PROBLEM
from tests.judge.suite.cases import FOLDER, opened, read_cases
from tests.judge.test_verdicts import variant

HEAD = """
import torch
import triton
import triton.language as tl
"""
SOFTMAX = (
    HEAD
    + """
@triton.jit
def softmax_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    top = tl.full((), float("-inf"), tl.float32)
    total = tl.zeros((), tl.float32)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * columns + column, mask=column < columns, other=float("-inf"))
        higher = tl.maximum(top, tl.max(x, axis=0))
        total = total * tl.exp(top - higher) + tl.sum(tl.exp(x - higher), axis=0)
        top = higher
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * columns + column, mask=column < columns)
        tl.store(y_ptr + row * columns + column, tl.exp(x - top) / total, mask=column < columns)

def kernel_function(x):
    rows, columns = x.shape
    y = torch.empty_like(x)
    softmax_kernel[(rows,)](x, y, columns, BLOCK=1024)
    return y
"""
)
LINEAR = (
    HEAD
    + """
@triton.jit
def linear_kernel(
    x_ptr, w_ptr, y_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr
):
    across = tl.cdiv(N, BN)
    m = (tl.program_id(0) // across) * BM + tl.arange(0, BM)
    n = (tl.program_id(0) % across) * BN + tl.arange(0, BN)
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        x_mask = (m[:, None] < M) & (k[None, :] < K)
        x = tl.load(x_ptr + m[:, None] * K + k[None, :], mask=x_mask, other=0.0)
        w_mask = (n[None, :] < N) & (k[:, None] < K)
        w = tl.load(w_ptr + n[None, :] * K + k[:, None], mask=w_mask, other=0.0)
        acc = tl.dot(x, w, acc)
    mask = (m[:, None] < M) & (n[None, :] < N)
    tl.store(y_ptr + m[:, None] * N + n[None, :], acc.to(y_ptr.dtype.element_ty), mask=mask)

def kernel_function(x, weight):
    M, K = x.shape
    N = weight.shape[0]
    y = torch.empty(M, N, dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(M, 64) * triton.cdiv(N, 64),)
    linear_kernel[grid](x, weight, y, M, N, K, BM=64, BN=64, BK=64)
    return y
"""
)
NORM = (
    HEAD
    + """
@triton.jit
def norm_kernel(x_ptr, weight_ptr, bias_ptr, y_ptr, columns, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    count = tl.zeros((), tl.float32)
    mean = tl.zeros((), tl.float32)
    squares = tl.zeros((), tl.float32)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        mask = column < columns
        x = tl.load(x_ptr + row * columns + column, mask=mask, other=0.0)
        new = tl.minimum(columns - start, BLOCK).to(tl.float32)
        own = tl.sum(x, axis=0) / new
        apart = own - mean
        spread = tl.sum(tl.where(mask, (x - own) * (x - own), 0.0), axis=0)
        squares += spread + apart * apart * count * new / (count + new)
        mean += apart * new / (count + new)
        count += new
    scale = 1 / tl.sqrt(squares / columns + eps)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        mask = column < columns
        x = tl.load(x_ptr + row * columns + column, mask=mask)
        weight = tl.load(weight_ptr + column, mask=mask)
        bias = tl.load(bias_ptr + column, mask=mask)
        tl.store(y_ptr + row * columns + column, (x - mean) * scale * weight + bias, mask=mask)

def kernel_function(x, weight, bias, eps):
    y = torch.empty_like(x)
    norm_kernel[(x.shape[0],)](x, weight, bias, y, x.shape[1], eps, BLOCK=1024)
    return y
"""
)


def source_of(name: str) -> str:
    problem = find_problem(name)
    assert problem.input_kernel is not None
    return problem.input_kernel.read_text()


RIGHT = {"row_softmax": SOFTMAX, "linear_bfloat16": LINEAR, "layer_norm": NORM}
MATVEC, RMS, POOL, DEPTHWISE = (source_of(name) for name in ("04", "36", "43", "82"))

WRONG = {
    "softmax without rescaling": (
        "row_softmax",
        variant("total * tl.exp(top - higher)", "total", SOFTMAX),
    ),
    "loop of one block": (
        "row_softmax",
        variant("range(0, columns, BLOCK)", "range(0, tl.minimum(columns, BLOCK), BLOCK)", SOFTMAX),
    ),
    "fewer programs where there are many rows": (
        "row_softmax",
        variant("[(rows,)]", "[(min(rows, 4096),)]", SOFTMAX),
    ),
    "variance without its correction": (
        "layer_norm",
        variant(" + apart * apart * count * new / (count + new)", "", NORM),
    ),
    "mean of the blocks' means": (
        "layer_norm",
        variant("mean += apart * new / (count + new)", "mean = (mean + own) / 2", NORM),
    ),
    "last part of a block dropped": (
        "linear_bfloat16",
        variant("range(0, K, BK)", "range(0, tl.maximum(K // BK, 1) * BK, BK)", LINEAR),
    ),
    "mask of the other dimension": (
        "linear_bfloat16",
        variant("    mask = (m[:, None] < M)", "    mask = (m[:, None] < N)", LINEAR),
    ),
    "rows of another dimension's length": (
        "linear_bfloat16",
        variant("m[:, None] * N + n", "m[:, None] * M + n", LINEAR),
    ),
    "programs laid over the other dimension": (
        "linear_bfloat16",
        variant("across = tl.cdiv(N, BN)", "across = tl.cdiv(M, BM)", LINEAR),
    ),
    "accumulates in its own dtype": (
        "linear_bfloat16",
        variant("tl.dot(x, w, acc)", "tl.dot(x, w, acc).to(tl.bfloat16).to(tl.float32)", LINEAR),
    ),
    "offset that wraps": (
        "04",
        variant("row * stride_am +", "(row * stride_am * 2).to(tl.int32) // 2 +", MATVEC),
    ),
    "only half the columns of many": (
        "04",
        variant("range(0, K, BLOCK_K)", "range(0, tl.minimum(K, 524288), BLOCK_K)", MATVEC),
    ),
    "grid too small for many pixels": (
        "36",
        variant("(triton.cdiv(pixels, 1024),", "(min(triton.cdiv(pixels, 1024), 128),", RMS),
    ),
    "one block past the end": (
        "36",
        variant("(triton.cdiv(pixels, 1024), batch)", "(pixels // 1024 + 1, batch)", RMS).replace(
            "mask = pixel < pixels", "mask = pixel < pixels + (pixels % 1024 == 0) * 8"
        ),
    ),
    "batch times one channel fewer": (
        "36",
        variant("batch * channels * pix", "batch * (channels - channels // 64) * pix", RMS),
    ),
    "no epsilon": ("36", variant(" / channels + eps)", " / channels)", RMS)),
    "programs add to one place": ("row_sum", (FOLDER / "wrong" / "data_race.py").read_text()),
    "height for width": (
        "43",
        variant("* H + h) * W + w", "* H + h) * H + w", POOL),
    ),
    "last plane left out of many": (
        "82",
        variant("N * channels)\n", "N * channels - N * channels // 1024 * 128)\n", DEPTHWISE),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def executors(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, LocalExecutor]]:
    made: dict[str, LocalExecutor] = {}
    for name in sorted({name for name, _ in WRONG.values()}):
        suite = FOLDER / "problems" / name / "problem.py"
        made[name] = LocalExecutor(
            read_problem(suite) if suite.is_file() else find_problem(name),
            machine=modelled(),
            scratch=tmp_path_factory.mktemp(name),
            seed=11,
        )
    yield made
    for executor in made.values():
        executor.close()


def verdict_of(executor: LocalExecutor, source: str) -> Verdict:
    return executor.run(JudgeJob(subject=Subject(name="candidate", source=source))).verdict


@pytest.mark.slow
@pytest.mark.parametrize("name", WRONG)
def test_no_wrong_kernel_is_correct(executors: dict[str, LocalExecutor], name: str) -> None:
    problem, source = WRONG[name]
    verdict = verdict_of(executors[problem], source)
    # What writes past a small output may take the process with it.
    assert verdict.outcome in (Outcome.WRONG, Outcome.CRASHED), verdict.reason


@pytest.mark.slow
@pytest.mark.parametrize("problem", RIGHT)
def test_what_they_were_made_from_is(executors: dict[str, LocalExecutor], problem: str) -> None:
    verdict = verdict_of(executors[problem], RIGHT[problem])
    assert verdict.correct, verdict.reason
    assert verdict.reach is Reach.GENERAL
    assert any(check.stage is Stage.OTHER_SHAPES and check.passed for check in verdict.checks)


def test_reason_names_the_line_that_leaves_its_tensor(
    executors: dict[str, LocalExecutor],
) -> None:
    verdict = verdict_of(executors["36"], WRONG["one block past the end"][1])
    assert verdict.stage is Stage.TRUE_SHAPES
    assert "past the end" in verdict.reason or "writes" in verdict.reason
    assert "rms_norm_kernel" in verdict.reason


@pytest.mark.parametrize(
    "change", ["", "    if x.shape[0] > 9:\n        raise ValueError(x.shape)\n"]
)
def test_verdicts_do_not_depend_on_how_many_processes_verify(
    executor: LocalExecutor, scale_problem: Problem, tmp_path: Path, change: str
) -> None:
    source = variant("    y = torch", f"    print(x.shape)\n{change}    y = torch", SCALE_KERNEL)
    job = JudgeJob(subject=Subject(name="candidate", source=source), thorough=True)
    alone = LocalExecutor(
        scale_problem, machine=modelled(), scratch=tmp_path, seed=7, interpreter_processes=1
    )
    try:
        assert alone.run(job) == executor.run(job)
    finally:
        alone.close()


def test_what_goes_on_beside_a_rejection_is_given_up(
    executor: LocalExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge, given_up, ended = executor._judge, threading.Event(), threading.Event()
    assert isinstance(judge, ModellingJudge)
    monkeypatch.setattr(judge, "_slots", threading.Semaphore(1))  # one is free, on one core too

    def task() -> None:
        assert given_up.wait(60)
        ended.set()

    with pytest.raises(ZeroDivisionError), judge._beside(task, given_up):
        raise ZeroDivisionError
    assert ended.is_set()


def test_an_oracle_is_right_while_another_thread_makes_inputs() -> None:
    """Torch's default dtype, in which inputs are made, is that of all threads."""
    source = variant("2 * x", "x * torch.full((1,), 0.1)", SCALE_PROBLEM)
    source = variant("rows = 1024", "rows = 8", source)
    problem = Problem(name="p", path=Path("problem.py"), source=source, dtype="float16")
    one, done = instantiate(problem, "cpu", 0), threading.Event()

    def others() -> None:
        while not done.is_set():
            instantiate(problem, "cpu", 1)

    thread = threading.Thread(target=others)
    thread.start()
    try:
        oracles = [run_oracle(one, one.inputs, torch.float64)[0] for _ in range(400)]
    finally:
        done.set()
        thread.join()
    assert all(torch.equal(oracle, oracles[0]) for oracle in oracles)


def test_kernel_that_raises_at_all_other_shapes_is_not_shown_correct(
    executor: LocalExecutor,
) -> None:
    made_for = "    if tuple(x.shape) != (1024, 4096):\n        raise ValueError('made for one')\n"
    verdict = verdict_of(
        executor, variant("    y = torch", made_for + "    y = torch", SCALE_KERNEL)
    )
    assert verdict.outcome is Outcome.UNPROVEN
    assert not verdict.correct
    assert "made for one" in verdict.reason and "a GPU would tell" in verdict.reason


def test_shapes_with_other_functions_show_nothing(executor: LocalExecutor) -> None:
    """Right wherever it is small, by a function that is never launched at the true shape."""
    second = SCALE_KERNEL.replace("def scale_kernel", "def small_kernel").partition("def kernel_")[
        0
    ]
    source = second + variant(
        "    scale_kernel[", "    (scale_kernel if x.numel() == 1 << 22 else small_kernel)[",
        SCALE_KERNEL,
    )  # fmt: skip
    verdict = verdict_of(executor, source)
    assert verdict.outcome is Outcome.UNPROVEN
    assert "small_kernel" in verdict.reason


def test_kernel_for_aligned_sizes_alone_is_correct_and_specialised(
    executor: LocalExecutor,
) -> None:
    made_for = "    if x.shape[1] % 64:\n        raise ValueError('made for whole lines')\n"
    verdict = verdict_of(
        executor, variant("    y = torch", made_for + "    y = torch", SCALE_KERNEL)
    )
    assert verdict.correct, verdict.reason
    assert verdict.reach is Reach.SPECIALISED


@pytest.mark.slow
def test_a_model_may_put_its_weights_on_the_gpu() -> None:
    """As many do that were written for one: here it is the host that has them."""
    (case,) = read_cases(["honest_more/rms_norm_model_new"])
    weight, kernel = "torch.ones(columns)", "        rows, columns = x.shape\n"
    assert weight in case.source and kernel in case.source
    source = case.source.replace(weight, 'torch.ones(columns, device="cuda")')
    source = source.replace(kernel, f"        assert x.device == self.weight.device\n{kernel}")
    with opened(case.problem, None) as executor:
        verdict = verdict_of(executor, source)
    assert verdict.correct, verdict.reason


def test_zeros_that_torch_wrote_need_no_store(executor: LocalExecutor) -> None:
    """What is stored covers half the output, and the other half is torch's."""
    source = SCALE_KERNEL.replace("torch.empty_like(x)", "(2 * x + bias).contiguous()")
    source = source.replace("mask = index < total", "mask = (index < total) & (index % 2 == 0)")
    verdict = verdict_of(executor, source)
    assert verdict.outcome is not Outcome.WRONG, verdict.reason


def test_a_size_that_must_be_even_leaves_the_others_different() -> None:
    medium = deciding(find_problem("rotary_embedding")).medium.sizes
    assert medium["head_dim"] == 4
    others = [medium[name] for name in ("batch_size", "query_heads", "key_heads", "seq_len")]
    assert len(set(others)) == 4 and min(others) >= 3


@pytest.mark.parametrize("name", ["04", "36", "43", "77", "82"])
def test_deciding_shapes_have_no_flat_dimension_and_each_long_in_turn(name: str) -> None:
    found = deciding(find_problem(name))
    first = [problem for shape in found.first()[:2] for problem in shape.problems]
    assert all(problem.sizes[name] >= 2 for problem in first for name in found.free)
    assert any(n & (n - 1) for n in (found.medium.sizes[name] for name in found.free))
    for size in found.free:
        lengths = [
            problem.sizes[size]
            for shape in long_shapes(find_problem(name), 64)
            for problem in shape.problems
            if f" {size}" in f" {shape.label}"
        ]
        assert found.original[size] in lengths


def test_rising_values_climb_along_every_dimension() -> None:
    assert DISTRIBUTIONS.index("rising") < 5
    problem = shrink(find_problem("36"))
    x = instantiate(problem, "cpu", 3, "rising").inputs[0].float()
    assert (instantiate(problem, "cpu", 3, "rising").inputs[0].float() == x).all()
    for dimension, size in enumerate(x.shape):
        first, last = x.select(dimension, 0).mean(), x.select(dimension, size - 1).mean()
        assert last - first > 3


def test_forms_that_differ_in_launch_parameters_are_interpreted_once(
    executor: LocalExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    forked: list[str] = []
    fork = ForkServers.fork

    def counted(self: ForkServers, kind: Any, **named: Any) -> Any:
        forked.append(kind)
        return fork(self, kind, **named)

    def judged(source: str) -> Verdict:
        forked.clear()
        verdict = executor.run(JudgeJob(subject=Subject(name="form", source=source))).verdict
        return verdict

    monkeypatch.setattr(ForkServers, "fork", counted)
    source = SCALE_KERNEL.replace("BLOCK=1024)", "BLOCK=512)").replace("(), 1024)", "(), 512)")
    first = judged(source)
    assert first.correct and "interpreting" in forked
    again = judged(source.replace("BLOCK=512)", "BLOCK=512, num_warps=2)"))
    assert "interpreting" not in forked and "capturing" in forked
    assert again.correct and again.checks == first.checks
    assert again.code_fingerprint != first.code_fingerprint
    wrong = source.replace("2 * x", "3 * x")
    for number in (2, 8):
        assert judged(wrong.replace("=512)", f"=512, num_warps={number})")).outcome is Outcome.WRONG
        assert "interpreting" in forked

"""Errors tell float32 arithmetic from anything with fewer digits, by one rule of what is asked."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from beamsearch.executor.local import LocalExecutor
from beamsearch.gpu.machine import modelled
from beamsearch.judge.runner.reference import problem_message
from beamsearch.judge.verification.negative_controls import expect
from beamsearch.judge.verification.oracle import expected_of, lost_in_sums, run_oracle
from beamsearch.judge.verification.tolerance import (
    Scale,
    compare,
    lower_precision,
    mean_and_spread,
    rms_error,
)
from beamsearch.problem.dispatch_modes import Tf32
from beamsearch.problem.instance import instantiate
from beamsearch.problem.problem import read_problem
from beamsearch.records.job import JudgeJob, Subject
from tests.judge.conftest import write_problem
from tests.judge.suite.cases import FOLDER


def judged(result: torch.Tensor, oracle: torch.Tensor, own: torch.Tensor) -> str | None:
    spread = mean_and_spread(oracle)[1]
    scale = Scale(spread=spread, noise=rms_error(own, oracle), tolerance=1e-3)
    difference = compare(result, oracle, scale)
    return lower_precision(result, difference.relative_rms, oracle, scale)


def to_tf32(x: torch.Tensor) -> torch.Tensor:
    """The nearest numbers with ten bits behind the point."""
    bits = x.view(torch.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32)


@pytest.mark.parametrize("uniform", [False, True])
@pytest.mark.parametrize("terms", [32, 4096])
def test_a_matrix_product(uniform: bool, terms: int) -> None:
    generator = torch.Generator().manual_seed(terms)
    make = torch.rand if uniform else torch.randn
    a = make(64, terms, generator=generator)
    b = make(terms, 64, generator=generator)
    oracle = (a.double() @ b.double()).float()
    own = a @ b
    one_by_one = torch.zeros(64, 64)
    for k in range(terms):
        one_by_one += a[:, k : k + 1] * b[k : k + 1]
    assert judged(own, oracle, own) is None
    assert judged(one_by_one, oracle, own) is None  # the least exact order there is
    for narrow in (to_tf32, lambda x: x.half().float(), lambda x: x.bfloat16().float()):
        assert "lower precision" in str(judged(narrow(a) @ narrow(b), oracle, own))
    in_tf32 = to_tf32(a) @ to_tf32(b)
    assert judged(in_tf32, oracle, in_tf32) is None  # where PyTorch itself does so


def test_sums_far_from_zero_may_round() -> None:
    x = torch.rand(256, 1 << 16, generator=torch.Generator().manual_seed(1))
    oracle = x.double().sum(1).float()
    halves = x.view(256, 64, -1).sum(2)
    total = torch.zeros(256)
    for part in halves.T:
        total += part
    assert judged(total, oracle, x.sum(1)) is None


ASKED = re.compile(r', input_precision="\w+"')
CONV, MATMUL = (
    ASKED.sub("", (FOLDER / "honest" / f"{name}.py").read_text())
    for name in ("conv_tf32", "matmul_ieee")
)
NARROW = {
    "float32": "tl.dot({0}, {1}, input_precision='ieee', acc=",
    "tf32": "tl.dot({0}, {1}, input_precision='tf32', acc=",
    "bfloat16": "tl.dot({0}.to(tl.bfloat16), {1}.to(tl.bfloat16), acc=",
}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "precision", "right", "wrong"),
    [
        ("conv_float32", "reference", ["tf32"], ["bfloat16"]),
        ("conv_float32", "strict", ["float32"], ["tf32"]),
        ("matmul_float32", "reference", [], ["tf32"]),
        ("matmul_float32", "strict", [], ["tf32"]),
    ],
)
def test_a_kernel_may_be_as_imprecise_as_its_baselines(
    tmp_path: Path, name: str, precision: str, right: list[str], wrong: list[str]
) -> None:
    problem = read_problem(FOLDER / "problems" / name / "problem.py").with_precision(precision)
    source, (left, other) = (CONV, "xw") if name == "conv_float32" else (MATMUL, "ab")
    executor = LocalExecutor(problem, machine=modelled(), scratch=tmp_path, seed=7)
    try:
        for how in (*right, *wrong):
            assert source.count(f"tl.dot({left}, {other}, ") == 1
            kernel = source.replace(f"tl.dot({left}, {other}, ", NARROW[how].format(left, other))
            subject = Subject(name=how, source=kernel)
            verdict = executor.run(JudgeJob(subject=subject)).verdict
            assert verdict.correct == (how in right), (how, verdict.reason)
            if how in wrong and name == "conv_float32":  # in sums far from zero more is wrong
                allowed = "TF32" if "tf32" in right else "float32"
                assert f"lower precision than {allowed}" in str(verdict.reason)
    finally:
        executor.close()


def test_the_noise_is_that_of_products_by_the_rule() -> None:
    """Where there is no GPU a convolution's noise is still TF32's; a depthwise one has none."""
    problem = read_problem(FOLDER / "problems" / "conv_float32" / "problem.py")
    share = {}
    for precision in ("reference", "strict"):
        instance = instantiate(problem.with_precision(precision), "cpu", 1, "normal")
        oracles = run_oracle(instance, instance.inputs, torch.float64)
        (expected,), (own,) = expected_of(instance, oracles, oracles)
        assert rms_error(own, oracles[0]) < 1e-6  # the baseline's own result is not cut
        share[precision] = expected.scale.noise / expected.scale.spread
        assert expected.scale.tf32 == (precision == "reference")
    assert 6e-4 < share["reference"] < 9e-4  # Triton's own TF32 product on an H200: 7.7e-4
    assert share["strict"] < 1e-6


@pytest.mark.parametrize(
    ("call", "tf32"),
    [
        ("F.conv1d(x, torch.ones(4, 8, 3))", True),
        ("F.conv_transpose1d(x, torch.ones(8, 1, 3), groups=8)", True),
        ("F.conv1d(x, torch.ones(4, 8, 3), padding='same')", True),
        ("F.conv1d(x, torch.ones(8, 1, 3), groups=8)", False),
        ("F.conv1d(x.half(), torch.ones(4, 8, 3).half())", False),
        ("F.linear(x, torch.ones(5, 16))", False),
        ("x @ x.transpose(1, 2)", False),
    ],
)
def test_what_pytorch_computes_in_tf32(call: str, tf32: bool) -> None:
    with torch.inference_mode(), torch.device("meta"), Tf32() as mode:
        eval(call, {"F": torch.nn.functional, "torch": torch, "x": torch.ones(2, 8, 16)})
    assert mode.seen == tf32


FLAGS = """
import torch
import torch.nn as nn

torch.backends.cuda.matmul.allow_tf32 = True
n = 4

class Model(nn.Module):
    def forward(self, x):
        flags = (torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32)
        return x + torch.tensor([*map(float, flags)])

def get_inputs():
    return [torch.zeros(n, 2)]

def get_init_inputs():
    return []
"""


TIMED = """
import json, sys
from beamsearch.judge.runner.reference import read_problem_message, reference_maker
from beamsearch.problem.instance import instantiate

message = json.load(sys.stdin)
arguments = instantiate(read_problem_message(message)).arguments
print(json.dumps(reference_maker(message, "cpu", None)(arguments)().tolist()))
"""


@pytest.mark.parametrize(("precision", "cudnn"), [("reference", 1.0), ("strict", 0.0)])
def test_the_process_that_times_baselines_computes_by_the_rule(
    tmp_path: Path, precision: str, cudnn: float
) -> None:
    """In a process of its own, as a baseline's, whatever the problem's file sets for itself."""
    problem = write_problem(tmp_path, FLAGS, "flags").with_precision(precision)
    done = subprocess.run(
        [sys.executable, "-c", TIMED],
        input=json.dumps(problem_message(problem)),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    assert json.loads(done.stdout) == [[cudnn, 0.0]] * 4


LONG_SUM = """
import torch
N, K = 64, {terms}
class Model(torch.nn.Module):
    def forward(self, A, B): return A @ B
def get_inputs(): return [torch.rand(N, K), torch.rand(K, N)]
def get_init_inputs(): return []
"""


def added_in_eights(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A product as matrix units add it up: eight terms at a time, the last bit cut off."""
    total = torch.zeros(a.shape[0], b.shape[1])
    for k in range(0, a.shape[1], 8):
        exact = total.double() + a[:, k : k + 8].double() @ b[k : k + 8].double()
        near = exact.float()
        smaller = torch.nextafter(near, torch.zeros_like(near))
        total = torch.where(near.abs().double() > exact.abs(), smaller, near)
    return total


@pytest.mark.parametrize("terms", [1024, 8192])
def test_what_matrix_units_lose_in_exact_sums_is_allowed_and_tf32_is_not(
    terms: int, tmp_path: Path
) -> None:
    problem = write_problem(tmp_path, LONG_SUM.format(terms=terms))
    sums = lost_in_sums(problem)
    assert sums == pytest.approx(terms * 2.0**-28)
    reasons = {}
    for distribution in ("own", "normal"):
        instance = instantiate(problem, "cpu", 1, distribution)  # type: ignore[arg-type]
        others = instantiate(problem, "cpu", 2, distribution).inputs  # type: ignore[arg-type]
        (expected,) = expect(instance, others, torch.float64, distribution, sums)  # type: ignore[arg-type]
        for name, narrow in (("exact", lambda x: x), ("tf32", to_tf32)):
            result = added_in_eights(*map(narrow, instance.inputs))
            difference = expected.difference(result)
            reasons[distribution, name] = (
                None if difference.passed else difference.explain(result, expected.oracle)
            ) or lower_precision(result, difference.relative_rms, expected.oracle, expected.scale)
    assert reasons["own", "exact"] is reasons["normal", "exact"] is None
    assert reasons["normal", "tf32"] is not None

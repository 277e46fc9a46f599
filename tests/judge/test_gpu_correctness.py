"""What only a GPU shows of correctness. `-s` prints what things took."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from beamsearch.executor.local import LocalExecutor
from beamsearch.judge.nvidia_tools.sanitizer import find_sanitizer
from beamsearch.judge.sandbox.memory import SharedMemory
from beamsearch.judge.verification import inputs as inputs_module
from beamsearch.judge.verification.inputs import InputSets
from beamsearch.judge.verification.tolerance import Scale, _examine, compare
from beamsearch.problem.instance import instantiate
from beamsearch.problem.problem import Problem, find_problem
from beamsearch.records.job import JudgeJob, Judgement, Subject
from beamsearch.records.verdict import Outcome, Reach, Stage
from tests.judge.conftest import SCALE_KERNEL, write_problem
from tests.judge.test_gpu import gpu_executor, run_judge
from tests.judge.test_verdicts import HOST, variant

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

SUMS = (
    "import torch\nN = 64\nK = 65536\n"
    "class Model(torch.nn.Module):\n    def forward(self, x):\n        return x.sum(1)\n"
    "def get_inputs():\n    return [torch.rand(N, K)]\ndef get_init_inputs():\n    return []\n"
)
SPLIT = """
import torch
import triton
import triton.language as tl

@triton.jit
def part_kernel(x_ptr, y_ptr, K, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    index = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    part = tl.sum(tl.load(x_ptr + row * K + index, mask=index < K, other=0.0))
    tl.atomic_add(y_ptr + row, part)

def kernel_function(x):
    x = x.contiguous()
    N, K = x.shape
    y = torch.zeros(N, device=x.device, dtype=torch.float32)
    part_kernel[(N, triton.cdiv(K, 1024))](x, y, K, BLOCK=1024)
    return y
"""
RACE = SPLIT.replace(
    "tl.atomic_add(y_ptr + row, part)", "tl.store(y_ptr + row, tl.load(y_ptr + row) + part)"
)


@pytest.fixture(scope="module")
def executor(
    scale_problem: Problem, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalExecutor]:
    made = gpu_executor(scale_problem, tmp_path_factory.mktemp("gpu"))
    yield made
    made.close()


@pytest.fixture
def judge(executor: LocalExecutor, request: pytest.FixtureRequest) -> Callable[[str], Judgement]:
    return lambda source: run_judge(executor, source, request.node.name)


@pytest.fixture(scope="module")
def sums(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalExecutor]:
    folder = tmp_path_factory.mktemp("sums")
    made = gpu_executor(write_problem(folder, SUMS, "sums"), folder / "scratch")
    yield made
    made.close()


def test_five_seeds_and_more_than_three_kinds_of_input(judge: Callable[[str], Judgement]) -> None:
    verdict = judge(SCALE_KERNEL).verdict
    names = [check.name for check in verdict.checks if check.stage is Stage.TRUE_SHAPES]
    assert verdict.correct
    assert verdict.reach is Reach.GENERAL
    assert len(names) == 5
    assert len({name.split()[0] for name in names}) > 3
    assert any(c.stage is Stage.DETERMINISM and c.passed for c in verdict.checks)


FOREIGN = {
    "raises": "    if x.shape[0] != 1024:\n        raise ValueError('odd')\n",
    "crashes": "    if x.shape[0] != 1024:\n        raise SystemExit\n",
}


@pytest.mark.parametrize("name", FOREIGN)
def test_what_is_right_at_the_true_shapes_alone_is_specialised(
    judge: Callable[[str], Judgement], name: str
) -> None:
    verdict = judge(variant(HOST, FOREIGN[name] + HOST)).verdict
    assert verdict.correct, verdict.reason
    assert verdict.reach is Reach.SPECIALISED
    assert judge(SCALE_KERNEL).verdict.correct


def test_what_is_wrong_at_a_shape_that_it_takes_is_wrong(judge: Callable[[str], Judgement]) -> None:
    zero = "    if x.shape[0] != 1024:\n        bias = torch.zeros_like(bias)\n"
    verdict = judge(variant(HOST, zero + HOST)).verdict
    assert verdict.outcome is Outcome.WRONG, verdict.reason
    assert verdict.stage in (Stage.SMOKE, Stage.OTHER_SHAPES)
    assert "raise at shapes that the kernel is not made for" in verdict.reason


def test_values_that_are_wrong_on_small_shapes_are_wrong(
    judge: Callable[[str], Judgement],
) -> None:
    """Only subnormal numbers would show it, which five sets at the true shapes do not hold."""
    source = variant("2 * x + bias", "tl.where((x != 0) & (tl.abs(x) < 1e-30), 9.0, 2 * x + bias)")
    verdict = judge(source).verdict
    assert (verdict.outcome, verdict.stage) == (Outcome.WRONG, Stage.SMOKE)
    assert "denormal" in verdict.reason


def test_atomic_sums_pass_and_a_race_does_not(sums: LocalExecutor) -> None:
    honest = run_judge(sums, SPLIT, "atomic additions").verdict
    assert honest.correct, honest.reason
    race = run_judge(sums, RACE, "data race").verdict
    assert race.outcome is Outcome.WRONG, race.reason


@pytest.mark.skipif(find_sanitizer() is None, reason="no compute-sanitizer here")
def test_reading_past_the_end_without_using_it_is_a_memory_error(executor: LocalExecutor) -> None:
    source = variant(
        "    tl.store(y_ptr",
        "    beyond = tl.load(x_ptr + total + index, mask=index < 64)\n"
        "    tl.store(y_ptr + index, beyond, mask=index < 64)\n    tl.store(y_ptr",
    )
    job = JudgeJob(subject=Subject(name="a", source=source), sanitize=True)
    verdict = executor.run(job).verdict
    print(f"\n{verdict.reason}\n{verdict.not_checked}")
    assert (verdict.outcome, verdict.stage) == (Outcome.WRONG, Stage.MEMORY)
    assert "read of size 2" in verdict.reason
    job = JudgeJob(subject=Subject(name="a", source=SCALE_KERNEL), sanitize=True, thorough=True)
    began = time.monotonic()
    verdict = executor.run(job).verdict
    print(f"thorough and sanitized: {time.monotonic() - began:.1f} s, {verdict.not_checked}")
    assert verdict.correct, verdict.reason
    assert len([c for c in verdict.checks if c.stage is Stage.MEMORY]) == 2
    assert any(c.stage is Stage.OTHER_SHAPES for c in verdict.checks)


def test_sets_beyond_the_memory_are_made_anew_and_the_same(
    scale_problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs_module, "MEMORY_SHARE", 1 << 40)
    sets = InputSets(scale_problem, SharedMemory("cuda:0"), seed=9)
    try:
        drawn = sets.draw(5)
        assert [inputs.shared is not None for inputs in drawn] == [True, True, False, False, False]
        places = set()
        for inputs in drawn[2:]:
            assert inputs.expected[0].oracle.device.type == "meta"
            with inputs.handout() as handout:
                instance = instantiate(scale_problem, "cuda:0", inputs.seed, inputs.distribution)
                wanted = instance.model.double()(instance.inputs[0].double())
                oracle = inputs.expected[0].oracle
                assert torch.allclose(oracle.double(), wanted, rtol=1e-6, equal_nan=True)
                assert not handout.changed()
                handout.inputs[0].words()[-1] += 1
                assert handout.changed()
                places.add(str(handout.given["storages"]))
        assert len(places) == 1
        assert drawn[2].expected[0].oracle.device.type == "meta"
        words = drawn[0].shared.inputs[0].words()  # type: ignore[union-attr]
        words[5000] += 1
        sets.mend()
        assert not drawn[0].shared.changed()  # type: ignore[union-attr]
    finally:
        sets.close()


@pytest.mark.parametrize("name", ["43", "36"])
def test_comparing_takes_milliseconds(name: str) -> None:
    shape = {"43": (16, 32, 62, 62, 62), "36": (112, 64, 512, 512)}[name]
    oracle = torch.randn(shape, device="cuda")
    result = oracle.bfloat16()
    scale = Scale(spread=1.0, noise=0.0, tolerance=1e-2)
    for label, function in (("usual", compare), ("whole", _examine)):
        seconds = []
        for _ in range(4):
            torch.cuda.synchronize()
            began = time.monotonic()
            assert function(result, oracle, scale).passed
            seconds.append(time.monotonic() - began)
        print(f"\n{name}: {label} comparison {1e3 * min(seconds):.1f} ms")
        if label == "usual":
            assert min(seconds) < 0.04


def test_pooling_is_verified_and_timed_in_five_seconds(tmp_path: Path) -> None:
    problem = find_problem("43")
    assert problem.input_kernel is not None
    source = problem.input_kernel.read_text()
    executor = gpu_executor(problem, tmp_path)
    try:
        run_judge(executor, source, "43, cold lane")
        began = time.monotonic()
        verdict = run_judge(executor, source.replace("1024", "512"), "43, warm lane").verdict
        seconds = time.monotonic() - began
    finally:
        executor.close()
    assert verdict.correct, verdict.reason
    assert "infinite #1" in {check.name for check in verdict.checks}
    assert seconds < 5

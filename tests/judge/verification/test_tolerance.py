"""Which outputs are right, and which input sets can tell."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from beamsearch.errors import ProblemError
from beamsearch.judge.sandbox.memory import GUARD_BYTES, SharedMemory
from beamsearch.judge.verification.inputs import InputSets
from beamsearch.judge.verification.negative_controls import expect
from beamsearch.judge.verification.oracle import DOUBLE_FLOPS, oracle_dtype
from beamsearch.judge.verification.tolerance import (
    TOLERANCE,
    Scale,
    compare,
    mean_and_spread,
    rms_error,
)
from beamsearch.problem.input_values import draw
from beamsearch.problem.instance import instantiate
from beamsearch.problem.least_work import least_work
from beamsearch.problem.problem import Problem, find_problem
from beamsearch.problem.shrink import shrink
from tests.judge.conftest import write_problem


def scale_of(oracle: torch.Tensor, tolerance: float) -> Scale:
    return Scale(spread=mean_and_spread(oracle)[1], noise=0.0, tolerance=tolerance)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_huge_mean_does_not_empty_the_test() -> None:
    oracle = 262144 + 170 * normal(2048, 1)
    scale = scale_of(oracle, 1e-3)
    assert compare(oracle.clone(), oracle, scale).passed
    assert not compare(torch.full_like(oracle, 262144), oracle, scale).passed
    assert torch.allclose(torch.full_like(oracle, 262144), oracle, rtol=1e-2)  # the naive check


def test_tiny_outputs_do_not_empty_the_test() -> None:
    oracle = 1e-6 * normal(100_000)
    scale = scale_of(oracle, 1e-2)
    assert compare(oracle.bfloat16(), oracle, scale).passed
    for wrong in (torch.zeros_like(oracle), 1.2 * oracle, oracle.flip(0)):
        difference = compare(wrong.bfloat16(), oracle, scale)
        assert not difference.passed


def test_sum_of_a_million_terms_may_round_but_not_in_half_precision() -> None:
    a, b = normal(64, 1 << 18).bfloat16(), normal(1 << 18, 1, seed=1).bfloat16()
    oracle = a.float() @ b.float()
    exact = (a.double() @ b.double()).float()
    in_float32, in_half = scale_of(oracle, 1e-3), scale_of(oracle, 1e-2)
    assert compare(exact, oracle, in_float32).passed
    blocks = (a.float() * b.float().T).view(64, -1, 256).sum(1).sum(1, keepdim=True)
    assert compare(blocks, oracle, in_float32).passed
    assert compare(blocks.bfloat16(), oracle, in_half).passed
    products = (a * b.T).float().view(64, -1, 256).sum(1)
    rounded = torch.zeros(64, 1, dtype=torch.float16)
    for part in products.half().T:
        rounded[:, 0] += part * 8  # accumulated at float16, far from its range's good part
    assert not compare((rounded / 8).float(), oracle, in_float32).passed


def test_one_wrong_element_of_a_million_is_found_and_placed() -> None:
    oracle = normal(1000, 1000)
    result = oracle.bfloat16()
    result[123, 456] += 1
    difference = compare(result, oracle, scale_of(oracle, 1e-2))
    assert difference.wrong == 1
    text = difference.explain(result, oracle)
    assert "1 of 1000000" in text
    assert "[123, 456]" in text


def test_not_finite_where_the_oracle_is_not() -> None:
    oracle = normal(1000) * 1e5
    oracle[0], oracle[1] = float("nan"), float("inf")
    scale = scale_of(oracle, 1e-2)
    result = oracle.half()  # overflows beyond 65504, and rightly so
    assert torch.isinf(result[2:]).any()
    assert compare(result, oracle, scale).passed
    result[2] = float("nan")
    assert compare(result, oracle, scale).not_finite == 1
    result[2] = oracle[2].half()
    result[1] = float("-inf")
    assert compare(result, oracle, scale).not_finite == 1


@pytest.mark.parametrize("name", ["04", "36", "43", "77", "82"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_pytorch_and_anything_more_accurate_passes(name: str, dtype: str) -> None:
    problem = shrink(find_problem(name).with_dtype(dtype), 20_000)
    for distribution in ("own", "normal"):
        instance = instantiate(problem, "cpu", 1, distribution)  # type: ignore[arg-type]
        other = instantiate(problem, "cpu", 2, distribution).inputs  # type: ignore[arg-type]
        (expected,) = expect(instance, other, torch.float64)
        # As a GPU does it: a CPU without AVX-512 adds transposed convolutions up in bfloat16.
        wide = instantiate(problem.with_dtype("float32"), "cpu", 1, distribution)  # type: ignore[arg-type]
        with torch.no_grad():
            for mine, given in zip(
                [*wide.model.state_dict().values(), *wide.inputs],
                [*instance.model.state_dict().values(), *instance.inputs],
                strict=True,
            ):
                mine.copy_(given)
        as_on_a_gpu = wide.reference().to(expected.dtype)
        assert compare(as_on_a_gpu, expected.oracle, expected.scale).passed
        better = expected.oracle.to(expected.dtype)
        assert compare(better, expected.oracle, expected.scale).passed
        assert not compare(better.roll(1), expected.oracle, expected.scale).passed


def sets(problem: Problem, folder: Path) -> InputSets:
    return InputSets(problem, SharedMemory("cpu"), seed=0)


def test_inputs_that_prove_nothing_are_replaced(tmp_path: Path) -> None:
    """A sum of a million uniform numbers is the same in bfloat16 whatever is added up."""
    source = (
        "import torch\nDTYPE = torch.bfloat16\nM = 8\nK = 1048576\n"
        "class Model(torch.nn.Module):\n    def forward(self, A):\n        return A.sum(1)\n"
        "def get_inputs():\n    return [torch.rand(M, K)]\ndef get_init_inputs():\n    return []\n"
    )
    made = sets(write_problem(tmp_path, source, "sums"), tmp_path)
    chosen = made.draw(5)
    assert len({inputs.seed for inputs in chosen}) == 5
    assert {"normal", "ties"} <= {inputs.distribution for inputs in chosen}
    assert "own" not in {inputs.distribution for inputs in chosen}
    assert "would pass" in made.dropped["own #1"]


def test_problem_that_cannot_tell_says_so(tmp_path: Path) -> None:
    source = (
        "import torch\nclass Model(torch.nn.Module):\n"
        "    def forward(self, x):\n        return torch.ones_like(x)\n"
        "def get_inputs():\n    return [torch.rand(8)]\ndef get_init_inputs():\n    return []\n"
    )
    with pytest.raises(ProblemError, match="output of other inputs would pass"):
        sets(write_problem(tmp_path, source, "ones"), tmp_path).draw(5)


def test_modified_inputs_show_wherever_they_are(tmp_path: Path) -> None:
    made = sets(shrink(find_problem("36"), 2000), tmp_path)
    (inputs,) = made.draw(1)
    with inputs.handout() as handout:
        assert not handout.changed()
        words = handout.inputs[0].words()
        first = GUARD_BYTES // 8
        swapped = [first + 7, first + 3]
        words[[first + 3, first + 7]] = words[swapped]  # two change places: their sum stays
        assert handout.changed()
    with inputs.handout() as handout:
        assert not handout.changed()


def test_the_element_shown_is_wrong_itself() -> None:
    """Not one that is off by more and may be, being large."""
    oracle = torch.randn(1000, generator=torch.Generator().manual_seed(0))
    oracle[7] = 400.0
    result = oracle.clone()
    result[7] += 0.05
    result[20] += 0.02
    difference = compare(result, oracle, Scale(spread=1.0, noise=0.0, tolerance=1e-3))
    assert difference.wrong == 2
    difference = compare(result, oracle, Scale(spread=20.0, noise=0.0, tolerance=1e-3))
    assert (difference.wrong, difference.worst_index) == (1, 20)
    assert difference.worst == pytest.approx(0.02, rel=1e-3)


@pytest.mark.parametrize(
    ("gpu", "wide"), [("NVIDIA H200", torch.float64), ("NVIDIA GeForce RTX 9999", torch.float32)]
)
def test_an_oracle_is_in_float64_where_the_gpu_has_units_for_it(monkeypatch, gpu, wide) -> None:
    problem = find_problem("matmul").with_dtype("float32")
    assert least_work(problem).flops > DOUBLE_FLOPS
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: gpu)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1 << 37, 1 << 37))
    assert oracle_dtype(problem, "cuda:0") is wide


def test_a_variance_by_difference_is_wrong_far_below_zero_and_one_of_two_passes_right() -> None:
    """What puts the rows of `far_below` where they are: sums of squares cancel there."""
    torch.manual_seed(0)
    x = draw("far_below", (256, 4096), "cpu", torch.float32)
    own = torch.nn.functional.layer_norm(x, (4096,))
    exact = torch.nn.functional.layer_norm(x.double(), (4096,)).float()
    scale = Scale(float(exact.std()), rms_error(own, exact), TOLERANCE["float32"])
    mean = x.mean(1, keepdim=True)
    variances = {
        "by difference": (x.square().mean(1, keepdim=True) - mean.square()).clamp(min=0),
        "in two passes": (x - mean).square().mean(1, keepdim=True),
    }
    wrong = {
        name: compare((x - mean) * torch.rsqrt(variance + 1e-5), exact, scale).wrong
        for name, variance in variances.items()
    }
    assert wrong["by difference"] > x.numel() / 100 and wrong["in two passes"] == 0

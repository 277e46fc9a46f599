"""Input sets that can tell: their values, the oracle, and the wrong outputs that must fail."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from beamsearch.judge.arguments import derive_seed
from beamsearch.judge.sandbox.memory import SharedMemory
from beamsearch.judge.verification.inputs import InputSets
from beamsearch.judge.verification.negative_controls import (
    CannotTell,
    check_controls,
    defined_distributions,
    expect,
    hides_a_part,
)
from beamsearch.judge.verification.oracle import Expected, oracle_dtype, run_oracle
from beamsearch.judge.verification.tolerance import (
    TOLERANCE,
    Scale,
    _examine,
    compare,
    mean_and_spread,
)
from beamsearch.problem.input_values import DISTRIBUTIONS, NOT_A_NUMBER, Distribution, draw
from beamsearch.problem.instance import instantiate
from beamsearch.problem.problem import Problem, find_problem
from beamsearch.problem.shrink import shrink
from tests.judge.conftest import write_problem

HEAD = "import torch\nimport torch.nn as nn\nN = 64\nK = 96\n"
TAIL = "def get_inputs():\n    return [torch.rand(N, K)]\ndef get_init_inputs():\n    return []\n"


def problem_of(folder: Path, body: str, name: str) -> Problem:
    """A problem whose `forward(self, x)` is this, on uniform x (64, 96)."""
    model = f"class Model(nn.Module):\n    def forward(self, x):\n        return {body}\n"
    return write_problem(folder, HEAD + model + TAIL, name)


def expected_of(oracle: torch.Tensor, dtype: torch.dtype = torch.bfloat16) -> Expected:
    scale = Scale(spread=mean_and_spread(oracle)[1], noise=0.0, tolerance=1e-2)
    return Expected(oracle, dtype, scale, may_alias=False)


@pytest.mark.parametrize("name", ["04", "36", "43", "77", "82"])
def test_a_missing_part_shows_on_the_five_problems(name: str) -> None:
    """One part in a hundred left at zero, or at what another call left there, wherever it is."""
    problem = shrink(find_problem(name), 20_000)
    instance, other = (instantiate(problem, "cpu", seed, "normal") for seed in (1, 2))
    (expected,) = expect(instance, other.inputs, torch.float64, "normal")
    right = expected.oracle.to(expected.dtype)
    (stale,) = run_oracle(instance, other.inputs, torch.float64)
    size = -(-right.numel() // 100)
    noticed = parts = 0
    for start in range(0, right.numel(), size):
        for replaced in (torch.zeros_like(stale), stale):
            wrong = right.clone().flatten()
            wrong[start : start + size] = replaced.flatten()[start : start + size].to(wrong.dtype)
            if torch.equal(wrong, right.flatten()):
                continue  # zeros where zeros belong
            parts += 1
            noticed += not compare(wrong.view_as(right), expected.oracle, expected.scale).passed
    assert parts > 0
    assert noticed >= 0.9 * parts - 1


def test_part_that_hides_in_the_spread_of_the_others_proves_nothing() -> None:
    generator = torch.Generator().manual_seed(0)
    oracle = torch.randn(100, 50, generator=generator)
    other = torch.randn(100, 50, generator=generator)
    check_controls(expected_of(oracle), other)
    for tensor in (oracle, other):
        tensor[60:] *= 1e-3  # below the tolerance that the other rows' spread gives
    assert hides_a_part(torch.zeros_like(oracle).bfloat16(), expected_of(oracle))
    with pytest.raises(CannotTell, match="small part zero would pass"):
        check_controls(expected_of(oracle), other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_the_quick_comparison_says_what_the_whole_one_says(dtype: torch.dtype) -> None:
    oracle = 3 * torch.randn(4000, generator=torch.Generator().manual_seed(1)) + 1
    scale = Scale(spread=3.0, noise=0.0, tolerance=1e-3 if dtype is torch.float32 else 1e-2)
    verdicts = []
    for size in (0.0, 0.1, 0.5, 0.9, 0.99, 1.01, 1.5, 3.0, 6.0, 20.0):
        for place in (0, 1234, 3999):
            result = oracle.to(dtype, copy=True)
            result[place] += size * scale.tolerance * (1 + abs(float(oracle[place])))
            quick, whole = compare(result, oracle, scale), _examine(result, oracle, scale)
            assert quick.passed == whole.passed
            verdicts.append(quick.passed)
        shifted = (oracle + size * scale.tolerance).to(dtype)
        assert compare(shifted, oracle, scale).passed == _examine(shifted, oracle, scale).passed
    assert True in verdicts
    assert False in verdicts


DEFINED: dict[str, tuple[str, set[str]]] = {
    "clamp": ("x.clamp(-1, 1)", {*DISTRIBUTIONS, NOT_A_NUMBER}),
    "logarithm": ("(x + 0.1).log()", {"own", "tiny", NOT_A_NUMBER}),
    "probabilities": (
        "nn.functional.binary_cross_entropy(x, x * 0.5, reduction='none')",
        {"own"},
    ),
    "sum": ("x.sum(1)", {*DISTRIBUTIONS, NOT_A_NUMBER} - {"infinite"}),
    "softmax": ("x.softmax(1)", {*DISTRIBUTIONS, NOT_A_NUMBER} - {"infinite"}),
    "exponential": ("x.exp()", {*DISTRIBUTIONS, NOT_A_NUMBER} - {"outliers", "large", "huge"}),
}


@pytest.mark.parametrize("name", DEFINED)
def test_inputs_are_those_that_the_operation_takes(name: str, tmp_path: Path) -> None:
    body, defined = DEFINED[name]
    assert set(defined_distributions(problem_of(tmp_path, body, name))) == defined


@pytest.mark.parametrize("distribution", ["normal", "outliers"])
def test_statistics_of_a_sample_show_where_there_are_outliers(
    distribution: Distribution,
) -> None:
    # Given groups of a million numbers and the statistics of an eighth of each
    torch.manual_seed(1)
    x = draw(distribution, (8, 1 << 20), "cpu", torch.bfloat16).float()
    sample = x[:, ::8]
    y = (x - sample.mean(1, keepdim=True)) / sample.std(1, keepdim=True)
    # Then they are within the tolerance but for outliers, which the whole of them is in any case
    oracle = (x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True)
    scale = Scale(float(oracle.std()), 0.0, TOLERANCE["bfloat16"])
    assert compare(y.bfloat16(), oracle, scale).passed == (distribution == "normal")
    assert compare(oracle.bfloat16(), oracle, scale).passed


def test_infinities_reach_where_a_pooling_window_holds_nothing_else() -> None:
    problem = shrink(find_problem("43"))
    instance = instantiate(problem, "cpu", 3, "infinite")
    (oracle,) = run_oracle(instance, instance.inputs, torch.float64)
    for value in (torch.inf, -torch.inf):
        assert (oracle == value).any()
    assert torch.isfinite(oracle).any()


def test_weights_of_ones_and_zeros_do_not_stay_so(tmp_path: Path) -> None:
    """What leaves out the weight and the bias of a fresh normalisation is wrong somewhere."""
    source = (
        f"{HEAD}class Model(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.norm = nn.LayerNorm(K)\n"
        f"    def forward(self, x):\n        return self.norm(x)\n{TAIL}"
    )
    problem = write_problem(tmp_path, source, "norm")
    instance = instantiate(problem, "cpu", 1, "normal")
    other = instantiate(problem, "cpu", 2, "normal").inputs
    (expected,) = expect(instance, other, torch.float64, "normal")
    without = torch.nn.functional.layer_norm(instance.inputs[0], (96,))
    assert not compare(without, expected.oracle, expected.scale).passed
    own: Any = instantiate(problem, "cpu", 1).model
    assert (own.norm.weight == 1).all()


def test_oracle_of_a_long_float32_sum_is_better_than_float32(tmp_path: Path) -> None:
    body = "        total = 0\n        for i in range(K):\n            total = total + x[:, i]\n"
    source = (
        f"{HEAD}class Model(nn.Module):\n    def forward(self, x):\n{body}"
        f"        return total\n{TAIL}"
    ).replace("K = 96", "K = 2048")
    problem = write_problem(tmp_path, source, "long")
    assert oracle_dtype(problem, "cpu") is torch.float64
    instance = instantiate(problem, "cpu", 1)
    (oracle,) = run_oracle(instance, instance.inputs, torch.float64)
    exact = instance.inputs[0].double().sum(1)
    assert oracle.dtype is torch.float32
    assert float((oracle - exact).abs().max()) <= 2**-13  # a unit in the last place
    assert float((instance.reference() - exact).abs().max()) > 2**-12


def test_reference_that_names_its_dtype_has_an_oracle_too(tmp_path: Path) -> None:
    problem = problem_of(tmp_path, "x @ torch.ones(K, N, dtype=torch.float32)", "named")
    instance = instantiate(problem, "cpu", 1)
    (oracle,) = run_oracle(instance, instance.inputs, torch.float64)
    assert oracle.shape == (64, 64)


def test_sets_depend_on_the_seed_alone_and_differ_from_each_other(tmp_path: Path) -> None:
    problem = shrink(find_problem("43"), 2000)

    def drawn(seed: int, count: int) -> dict[str, torch.Tensor]:
        sets = InputSets(problem, SharedMemory("cpu"), seed)
        found = sets.draw(count)
        return {s.label: s.instance.inputs[0] for s in found if s.instance is not None}

    first, again, other = drawn(5, 8), drawn(5, 3), drawn(6, 3)
    assert len(first) == 8
    assert all(torch.equal(first[label], again[label]) for label in again)
    both = first.keys() & other.keys()  # a set that proves nothing from one seed may from another
    assert both and not any(torch.equal(first[label], other[label]) for label in both)
    assert derive_seed(2**128 - 1, problem, "own #1") >> 32  # more than a search would find

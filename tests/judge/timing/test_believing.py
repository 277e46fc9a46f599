"""When a time is believed: what memory and arithmetic can do."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from beamsearch.judge.timing.least_time import below_arithmetic, impossible, needed_share
from beamsearch.problem.least_work import LeastWork
from beamsearch.search.pairs import paired
from kernel_profiling.gpus import find_gpu
from tests.judge.conftest import write_problem


def test_no_kernel_is_faster_than_the_memory() -> None:
    h200 = find_gpu("h200")
    work = LeastWork(4_000_000_000, 800_000_000, 0, {}, ())  # 1 ms at the datasheet's bandwidth
    l2 = h200.l2_bytes

    def never() -> float:
        raise AssertionError("asked for nothing")

    assert impossible(0.95, work, h200, l2, never) is None
    assert "at least 0.8" in (impossible(0.5, work, h200, l2, lambda: 0.9) or "")
    # A strided input of which a quarter is read: half a millisecond is honest.
    assert impossible(0.5, work, h200, l2, lambda: 0.25) is None
    # Outputs that stay in the L2 need not reach the memory within the call.
    small = LeastWork(0, l2, 0, {}, ())
    assert impossible(1e-3, small, h200, l2, never) is None


def test_a_time_below_the_arithmetic_is_told() -> None:
    h200 = find_gpu("h200")
    work = LeastWork(0, 0, 494_700_000_000, {}, (), products="tf32")  # 1 ms at the datasheet's rate
    assert below_arithmetic(1.01, work, h200) is None
    assert "at least 1 ms in tf32" in (below_arithmetic(0.9, work, h200) or "")
    assert below_arithmetic(1.01, replace(work, products="float32"), h200) is not None


@pytest.mark.parametrize(
    ("forward", "least", "most"),
    [("x * 2", 0.89, 0.91), ("x[:, :1024] * 2", 0.0, 0.5), ("x.max(dim=1).values", 0.89, 0.91)],
)
def test_what_must_be_read_is_what_the_output_depends_on(
    forward: str, least: float, most: float, tmp_path: Path
) -> None:
    source = f"""
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return {forward}
def get_inputs():
    return [torch.rand(64, 8192)]
def get_init_inputs():
    return []
"""
    assert least <= needed_share(write_problem(tmp_path, source), "cpu") <= most


def test_one_kernel_against_itself_is_a_tie() -> None:
    """Noise of 0.3% a turn, as seen on an H200, and a drift that both share."""
    draw, ties = random.Random(1), 0
    for _ in range(100):
        drift = [1 + 0.02 * turn for turn in range(10)]
        one, other = ([d * draw.gauss(1, 0.003) for d in drift] for _ in range(2))
        ties += paired(one, other).verdict == "tie"
    assert ties >= 95


def test_a_gain_of_three_percent_is_seen_through_a_drift() -> None:
    draw = random.Random(2)
    drift = [1 + 0.02 * turn for turn in range(10)]
    fast = [0.97 * d * draw.gauss(1, 0.003) for d in drift]
    slow = [d * draw.gauss(1, 0.003) for d in drift]
    found = paired(fast, slow)
    assert found.verdict == "faster"
    assert found.low < 0.97 < found.high or found.median == pytest.approx(0.97, abs=0.005)
    assert paired(slow, fast).verdict == "slower"

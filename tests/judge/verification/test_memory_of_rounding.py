"""What it takes to see how far rounding moves an output, which may be a tenth of a GPU's memory."""

import pytest
import torch

from beamsearch.judge.verification.negative_controls import Sway, expect
from beamsearch.judge.verification.oracle import run_oracle
from beamsearch.judge.verification.tolerance import Difference
from beamsearch.problem.instance import instantiate
from tests.judge.conftest import write_problem

CHANNELS = 64
SOURCE = f"""
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(4, {CHANNELS}, 3, bias=False)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.randn(16, 4, 1026, 1026)]


def get_init_inputs():
    return []
"""


@pytest.mark.gpu
def test_little_more_than_an_output_and_a_short_one(tmp_path):
    problem = write_problem(tmp_path, SOURCE)

    def make(seed):
        return instantiate(problem, "cuda:0", seed, "outliers")

    instance, other = make(1), make(2)
    every = expect(instance, other.inputs, torch.float32, "outliers")
    (result,) = run_oracle(instance, instance.inputs, torch.float32)
    size = result.nbytes
    assert size > 4e9  # many pieces
    run_oracle(instance, instance.inputs, torch.float32)  # the library's own memory
    del other
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    found = Sway(make, 1, torch.float32, "float32").reconsider(
        Difference(result.numel(), 0.0, wrong=1), result, 0, every
    )
    assert found.passed
    assert torch.cuda.max_memory_allocated() - before < 3.5 * size

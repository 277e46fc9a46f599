"""Convolutions taken apart, against PyTorch's own."""

import random

import pytest
import torch

from beamsearch.baselines.inductor.decompose import Convolution, convolution, taken_apart


@pytest.mark.parametrize("seed", range(60))
def test_equals_the_library(seed):
    draw = random.Random(seed)
    dims, transposed = draw.choice([1, 2, 3]), draw.random() < 0.6
    groups, per_group, out = draw.choice([1, 2, 3]), draw.choice([1, 2]), draw.choice([1, 3])
    kernel, stride, dilation = ([draw.randint(1, most) for _ in range(dims)] for most in (4, 3, 3))
    padding = [draw.randint(0, 2) for _ in range(dims)]
    extra = [
        draw.randint(0, max(s, d) - 1) if transposed else 0
        for s, d in zip(stride, dilation, strict=True)
    ]
    size = [draw.randint(10, 13) for _ in range(dims)]
    x = torch.randn(2, groups * per_group, *size, dtype=torch.float64)
    first = groups * (per_group if transposed else out)
    weight = torch.randn(first, out if transposed else per_group, *kernel, dtype=torch.float64)
    bias = torch.randn(groups * out, dtype=torch.float64) if draw.random() < 0.5 else None
    how = Convolution(stride, padding, dilation, transposed, extra, groups)
    expected = torch.ops.aten.convolution(
        x, weight, bias, stride, padding, dilation, transposed, extra, groups
    )
    torch.testing.assert_close(taken_apart(x, weight, bias, how), expected)


def test_what_has_a_template_is_left_to_it():
    x, weight = torch.randn(1, 2, 8, 8), torch.randn(4, 2, 3, 3)
    plain = ([1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    assert convolution(x, weight, None, *plain) is NotImplemented

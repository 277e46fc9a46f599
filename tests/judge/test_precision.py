"""Errors tell float32 arithmetic from anything with fewer digits."""

from __future__ import annotations

import pytest
import torch

from beamsearch.judge.compare import Scale, compare, mean_and_spread, rms_error
from beamsearch.judge.precision import lower_precision


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

"""Which GPU kernels a call runs."""

import pytest
import torch

from beamsearch.judge.runner.kernel_times import LONGEST, OTHERS, kernel_times, longest
from beamsearch.records.job import KernelTime


def test_the_longest_are_named_and_the_rest_is_added_up():
    times = {f"k{number}": (number, float(number)) for number in range(1, LONGEST + 4)}
    told = [KernelTime.model_validate(item) for item in longest(times)]
    assert [one.name for one in told[:2]] == ["k8", "k7"] and len(told) == LONGEST + 1
    assert told[-1] == KernelTime(name=OTHERS, count=6, ms=6.0)
    assert [item["name"] for item in longest({"a": (2, 0.5)})] == ["a"]


@pytest.mark.gpu
def test_kernels_of_a_call_are_named_with_their_time():
    left = torch.ones(4096, 4096, device="cuda")
    told = kernel_times(lambda: torch.nn.functional.softmax(left @ left, 1))
    assert len(told) >= 2 and "gemm" in told[0]["name"] and told[0]["count"] == 1
    assert all(0 < item["ms"] < 100 for item in told)

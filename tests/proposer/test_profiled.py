"""A profile as a prompt tells it."""

import pytest

from beamsearch.proposer.prompts.profiled import profiled
from kernel_profiling.profile import Launch, Profile

COUNTED = {"duration_us": 100.0, "l2_busy": 33.0}


def told(**metrics: float) -> str:
    """Of one launch, with these counters too."""
    launch = Launch(
        name="kernel",
        triton=True,
        grid=(1, 1, 1),
        threads=128,
        share=1.0,
        metrics=COUNTED | metrics,
    )
    traffic = {"dram": 3e8, "l2": 5e8}
    return "\n".join(
        profiled(Profile(source="ncu", gpu="", launches=[launch], traffic=traffic), None)
    )


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        ({"sm_to_l2_busy": 65.0, "l2_to_sm_busy": 14.0}, "65% (way in: stores, requests)"),
        ({"sm_to_l2_busy": 10.0, "l2_to_sm_busy": 70.0}, "70% (way out: loads)"),
        ({"sm_to_l2_busy": 10.0, "l2_to_sm_busy": 14.0}, "33%."),
        ({}, "33%."),
    ],
)
def test_the_l2_is_told_with_what_it_is_busy(metrics: dict[str, float], said: str) -> None:
    assert f"the L2 {said}" in told(**metrics)

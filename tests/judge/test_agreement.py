"""When a time is believed: the clocks, the list of kernels, and what the memory can do."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from beamsearch.judge.agreement import (
    Activity,
    Batch,
    WatchedCall,
    below_arithmetic,
    clocks_disagree,
    impossible,
    misconduct,
    remembers,
    shortcut,
    works_ahead,
)
from beamsearch.judge.least import needed_share
from beamsearch.judge.pairs import paired
from beamsearch.judge.timing import BATCHES, deal
from beamsearch.problem import LeastWork
from profiling.gpus import find_gpu
from tests.judge.conftest import write_problem

OWN = {"pool_kernel", "sum_kernel"}
GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64"
COPY = "_ZN2at6native18elementwise_kernelILi128ELi4EZNS0_direct_copy_kernel_cudaE"


def did(
    name: str, begin_us: float, end_us: float, stream: int = 7, graph: bool = False
) -> Activity:
    kind = name if name in ("copy", "fill") else "kernel"
    return Activity(
        kind=kind,  # type: ignore[arg-type]
        name=name,
        stream=stream,
        graph=graph,
        start_ns=int(begin_us * 1e3),
        end_ns=int(end_us * 1e3),
    )


def call(*during: Activity, before: tuple[Activity, ...] = (did("fill", -90, -10),)) -> WatchedCall:
    return WatchedCall(before=list(before), during=list(during))


HONEST = [call(did("pool_kernel", 0, 900), did("sum_kernel", 905, 1000)) for _ in range(6)]


def test_honest_calls_pass() -> None:
    assert misconduct(HONEST, OWN, 1.01) is None
    repacked = [call(did(COPY, 0, 600), did("fill", 600, 630), did("pool_kernel", 630, 1000))] * 3
    assert misconduct(repacked, OWN, 1.0) is None
    last_sum_in_torch = [call(did("pool_kernel", 0, 800), did("at_reduce_kernel", 800, 1000))] * 3
    assert misconduct(last_sum_in_torch, OWN, 1.0) is None


MISCONDUCT = {
    "a result kept": ([*HONEST[:5], call()], "runs nothing on the GPU"),
    "a library": ([call(did(GEMM, 0, 1000))] * 3, "none of its own Triton kernels"),
    "for show": (
        [call(did(GEMM, 0, 900), did("pool_kernel", 900, 1000))] * 3,
        "90% of its time in",
    ),
    "mostly copies": (
        [call(did(COPY, 0, 900), did("pool_kernel", 900, 1000))] * 3,
        "copies, fills",
    ),
    "another stream": ([call(did("pool_kernel", 0, 1000, stream=13))] * 3, "another CUDA stream"),
    "a graph": ([call(did("pool_kernel", 0, 1000, graph=True))] * 3, "CUDA graph"),
    "two calls in one": (
        [call(did("pool_kernel", 0, 1000), did("pool_kernel", 1000, 2000)), *HONEST[:1]] * 2,
        "the same work in every call",
    ),
    "left for later": (
        [call(*HONEST[0].during, before=(did("fill", -90, -50), did("sum_kernel", -50, -1)))] * 3,
        "leaves work for after the call: sum_kernel",
    ),
    "outside the events": ([call(did("pool_kernel", 0, 2000))] * 3, "where its events say 1 ms"),
}


@pytest.mark.parametrize("name", MISCONDUCT)
def test_misconduct_is_named(name: str) -> None:
    calls, reason = MISCONDUCT[name]
    assert reason in (misconduct(calls, OWN, 1.0) or "")


def batch(times: list[float], span: float, first: int = -1) -> Batch:
    return Batch(times, [index == first for index in range(len(times))], span, warmup=2)


def test_clocks() -> None:
    """Ten calls of 10 ms and two for warming up: 120 ms of kernels, 12 flushes of 0.1 ms."""
    assert clocks_disagree([batch([10.0] * 10, 123.0)], 0.1) is None
    assert "work is done outside" in (clocks_disagree([batch([5.0] * 10, 123.0)], 0.1) or "")
    assert "judge's clock saw 80 ms" in (clocks_disagree([batch([10.0] * 10, 80.0)], 0.1) or "")


def test_values_seen_before_take_no_less() -> None:
    honest = [batch([1.03, 1.0, 1.0, 0.99], 5.0, first=0) for _ in range(6)]
    assert remembers(honest) is None
    keeps = [batch([1.0, 0.6, 0.6, 0.6], 5.0, first=0) for _ in range(6)]
    assert "results are kept" in (remembers(keeps) or "")
    calls = [call(did("pool_kernel", 0, us)) for us in (4.4, 4.3, 7.5, 4.4, 4.3, 4.4)]
    assert "not seen before" in (shortcut(calls, first=2) or "")
    assert shortcut(calls[:2] + calls[3:], first=1) is None


def test_work_done_ahead_of_the_new_values_is_seen() -> None:
    """In the warm-up calls, in the timed call before them, in the watched call before them."""

    def taken(warm_ms: float) -> Batch:
        return Batch([1.0] * 10, [False] * 10, 15.0, warmup=2, warm_ms=warm_ms)

    honest, ahead = taken(2.3), taken(2.0 + 0.2 + 1.2)
    assert works_ahead([honest] * 4 + [ahead] * 2, 0.1) is None  # a hiccup or two
    assert "before the timed calls" in (works_ahead([honest] * 2 + [ahead] * 4, 0.1) or "")
    keeps = [batch([1.0, 0.6, 0.6, 0.6, 0.6], 5.0, first=1) for _ in range(6)]
    assert "results are kept" in (remembers(keeps) or "")
    calls = [call(did("pool_kernel", 0, us)) for us in (7.5, 4.4, 4.3, 4.4, 4.3, 4.4)]
    assert "not seen before" in (shortcut(calls, first=1) or "")


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


def test_batches_are_dealt_whole_and_unevenly() -> None:
    draw = random.Random(0)
    dealt = [deal(100, draw) for _ in range(50)]
    assert {sum(lengths) for lengths in dealt} == {100}
    assert {len(lengths) for lengths in dealt} == {BATCHES}
    assert len({tuple(lengths) for lengths in dealt}) == 50
    assert deal(3, draw) == [1, 1, 1]


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
